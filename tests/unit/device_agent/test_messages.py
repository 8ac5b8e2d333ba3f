"""Messages are, byte for byte, what protobuf makes of the kubelet's API."""

import importlib.resources
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import MalformedMessage
from device_agent.protocol import messages, pod_resources
from device_agent.protocol.wire import Field, Message, Type, decode, encode

DATA = Path(__file__).parents[2] / "data"
PROTOS = ("device_plugin.proto", "pod_resources.proto")
KINDS: dict[str, type[Message]] = {
    name: kind
    for name, kind in {**vars(messages), **vars(pod_resources)}.items()
    if isinstance(kind, type) and issubclass(kind, Message) and is_dataclass(kind)
}

Classes = dict[str, Any]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Classes:
    """Compile the definition; gives protobuf's class of each message."""
    made = tmp_path_factory.mktemp("proto") / "made"
    include = importlib.resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{DATA}", f"-I{include}", f"--descriptor_set_out={made}", *PROTOS]
    assert protoc.main(arguments) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file:
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(descriptor)
        for proto in PROTOS
        for name, descriptor in pool.FindFileByName(proto).message_types_by_name.items()
    }


def _values(field: Field) -> st.SearchStrategy[Any]:
    match field.type:
        case Type.MAP:  # of one entry: protobuf sorts in its own way
            return st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=1)
        case Type.STRING:
            one: st.SearchStrategy[Any] = st.text(max_size=200)
        case Type.BOOL:
            one = st.booleans()
        case Type.INTEGER:
            bits = 31 if field.name == "size" else 63
            one = st.integers(-(2**bits), 2**bits - 1)
        case kind:
            one = _messages(kind) if field.repeated else st.none() | _messages(kind)
    return st.lists(one, max_size=3).map(tuple) if field.repeated else one


def _messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{field.name: _values(field) for field in kind.FIELDS})


_ANY = st.sampled_from(sorted(KINDS)).flatmap(lambda name: _messages(KINDS[name]))


def _theirs(message: Message, classes: Classes) -> Any:
    """Make the same message with protobuf."""
    made = classes[type(message).__name__]()
    for field in message.FIELDS:
        name, value = made.DESCRIPTOR.fields_by_number[field.number].name, getattr(message, field.name)
        if field.type is Type.MAP:
            getattr(made, name).update(value)
        elif isinstance(field.type, Type):
            getattr(made, name).extend(value) if field.repeated else setattr(made, name, value)
        elif field.repeated:
            getattr(made, name).extend(_theirs(item, classes) for item in value)
        elif value is not None:
            getattr(made, name).CopyFrom(_theirs(value, classes))
    return made


def test_every_message_of_the_api_is_known(classes: Classes) -> None:
    """Names, numbers of fields, and their order."""
    assert sorted(classes) == sorted(KINDS)
    for name, kind in KINDS.items():
        assert [field.number for field in kind.FIELDS] == sorted(classes[name].DESCRIPTOR.fields_by_number)
        assert [field.name for field in kind.FIELDS] == [field.name for field in fields(kind)]  # type: ignore[arg-type]


@given(_ANY)
def test_a_message_is_written_as_protobuf_writes_it(classes: Classes, message: Message) -> None:
    """Byte for byte, and read back from protobuf's bytes."""
    theirs = _theirs(message, classes).SerializeToString(deterministic=True)
    assert encode(message) == theirs
    assert decode(theirs, type(message)) == message


@given(st.binary(max_size=60), st.sampled_from(sorted(KINDS)))
def test_any_bytes_are_read_or_refused(content: bytes, name: str) -> None:
    """Nothing but the one error comes out."""
    try:
        found = decode(content, KINDS[name])
    except MalformedMessage:
        return
    assert isinstance(found, KINDS[name])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"\x0a\x05ab", "it ends within a field", id="cut"),
        pytest.param(b"\x80" * 11, "a number does not end", id="endless number"),
        pytest.param(b"\x0b", "there is no wire type 3", id="a group"),
        pytest.param(b"\x08\x01", "field id is a number", id="number for a string"),
        pytest.param(b"\x0a\x01\xff", "a string is not UTF-8", id="not UTF-8"),
    ],
)
def test_what_is_malformed_is_refused(content: bytes, message: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(MalformedMessage, match=message):
        decode(content, messages.Device)


def test_unknown_fields_are_skipped() -> None:
    """A newer kubelet may send more: fields of each wire type are left out."""
    unknown = b"\xf8\x01\x07" + b"\xf9\x01" + b"8" * 8 + b"\xfa\x01\x02ab" + b"\xfd\x01" + b"4" * 4
    known = encode(messages.Device(id="a", health="Healthy"))
    assert decode(unknown + known + unknown, messages.Device) == messages.Device(id="a", health="Healthy")
