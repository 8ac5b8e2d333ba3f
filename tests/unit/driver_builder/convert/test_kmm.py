"""Modules of Kernel Module Management, field by field: what they become, and what is said of the rest."""

from typing import Any

import pytest

from driver_builder.api import driver_container
from driver_builder.api.spec_parser import read_spec
from driver_builder.base.check_result import Status
from driver_builder.base.reasons import Reason
from driver_builder.convert.kmm import Conversion, Known, convert
from driver_builder.snapshot.snapshot import SourceMissing
from driver_builder.targets.desired_target import BlockedTarget, PrebuiltTarget
from driver_builder.targets.resolve import resolve
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL, SETTINGS, node, snapshot
from tests.support.driver_builder.factories import spec_of as spec_of_driver

Json = dict[str, Any]

K1, K2 = "6.1.0-55-amd64", "6.1.0-56-amd64"
CONTAINER = "spec.moduleLoader.container"
PLAIN: Json = {"literal": K1, "containerImage": "r.example.com/drivers/edu:1"}
BY_KERNEL: Json = {"regexp": "^6", "containerImage": "r.example.com/drivers/edu:${KERNEL_FULL_VERSION}"}


def module(*mappings: Json, modprobe: Json | None = None, spec: Json | None = None, **container: Any) -> Json:
    """Make a Module."""
    loader = {"container": {"modprobe": {"moduleName": "edu"} if modprobe is None else modprobe,
                            "kernelMappings": list(mappings or (PLAIN,)), **container}}  # fmt: skip
    return {
        "apiVersion": "kmm.sigs.x-k8s.io/v1beta1",
        "kind": "Module",
        "metadata": {"name": "edu", "namespace": "drivers"},
        "spec": {"moduleLoader": loader, "selector": {"pool": "edu"}, **(spec or {})},
    }


def said(conversion: Conversion, *, errors: bool | None = None) -> dict[str, str]:
    """Return what is said, by the path of the field."""
    return {
        ".".join(map(str, remark.path)): remark.message
        for remark in conversion.remarks.said
        if errors in (None, remark.status is Status.FAILED)
    }


def spec_of(*words: Json, known: Known | None = None, **more: Any) -> Json:
    """Convert a Module of which nothing has to be said."""
    conversion = convert(module(*words, **more), known or Known())
    assert said(conversion) == {}
    assert conversion.driver is not None
    found: Json = conversion.driver["spec"]
    return found


def test_a_module_with_an_image_is_a_driver_without_a_build() -> None:
    """Everything that it says is in the new object, and nothing has to be said."""
    conversion = convert(module(), Known())
    assert said(conversion) == {}
    assert conversion.driver == {
        "apiVersion": "driverwright.io/v1alpha1",
        "kind": "DriverContainer",
        "metadata": {"name": "edu", "namespace": "drivers"},
        "spec": {
            "version": "0",
            "nodeSelector": {"pool": "edu"},
            "image": "r.example.com/drivers/edu",
            "source": {"configMap": {"name": "edu-source"}},
            "kernelMappings": [{"literal": K1, "image": "r.example.com/drivers/edu:1", "dirName": "/opt"}],
            "module": {"names": ["edu"], "trustImage": True},
        },
    }


def test_what_an_api_server_fills_in_says_nothing() -> None:
    """``kubectl get -o yaml`` has defaults, empty objects and a status."""
    filled = module(
        {**PLAIN, "build": None, "registryTLS": None, "regexp": ""},
        registryTLS={},
        inTreeModuleToRemove="",
        modprobe={"moduleName": "edu", "dirName": "/opt"},
        spec={"imageRepoSecret": None, "tolerations": []},
    )
    conversion = convert({**filled, "status": {"moduleLoader": {}}}, Known())
    assert said(conversion) == {}
    assert conversion.driver == convert(module(), Known()).driver


def test_a_label_without_a_value_is_still_selected() -> None:
    """Roles of nodes are such labels, and the selector of KMM's own pages is one."""
    worker = {"node-role.kubernetes.io/worker": ""}
    assert spec_of(spec={"selector": worker})["nodeSelector"] == worker


@pytest.mark.parametrize("selector", [pytest.param({}, id="empty"), pytest.param(None, id="missing")])
def test_a_module_for_every_node_is_said(selector: Json | None) -> None:
    """KMM keeps to nodes without taints, driver pods tolerate them; that it is meant is written into the object."""
    conversion = convert(module(spec={"selector": selector}), Known())
    assert "every node, control planes as well" in said(conversion, errors=False)["spec.selector"]
    assert conversion.driver is not None
    assert conversion.driver["spec"]["nodeSelector"] == {}


def test_a_namespace_is_written_where_the_module_has_one() -> None:
    """Without one, that of kubectl's context stands."""
    without = module()
    del without["metadata"]["namespace"]
    conversion = convert(without, Known())
    assert said(conversion) == {}
    assert conversion.driver is not None
    assert conversion.driver["metadata"] == {"name": "edu"}


def test_an_image_that_is_named_by_a_namespace_needs_one() -> None:
    """Which one that is, is not known here."""
    without = module({**PLAIN, "containerImage": "r.example.com/${MOD_NAMESPACE}/edu:1"})
    del without["metadata"]["namespace"]
    assert "${MOD_NAMESPACE}" in said(convert(without, Known()), errors=True)["metadata.namespace"]


def test_modules_are_loaded_in_the_reverse_of_the_order_written() -> None:
    """KMM begins with the module that needs the others."""
    modprobe = {"moduleName": "edu", "modulesLoadingOrder": ["edu", "b", "c"], "parameters": ["x=1"],
                "firmwarePath": "/firmware", "dirName": "/modules"}  # fmt: skip
    spec = spec_of(modprobe=modprobe)
    assert spec["module"] == {
        "names": ["c", "b", "edu"], "parameters": {"edu": ["x=1"]}, "firmwarePath": "/firmware", "trustImage": True,
    }  # fmt: skip
    assert spec["kernelMappings"][0]["dirName"] == "/modules"


def test_a_module_of_the_order_is_named_once() -> None:
    """The kernel knows no difference between ``-`` and ``_``; parameters go to the name that is written."""
    modprobe = {"moduleName": "edu_drv", "modulesLoadingOrder": ["edu-drv", "b"], "parameters": ["x=1"]}
    written = spec_of(modprobe=modprobe)["module"]
    assert (written["names"], written["parameters"]) == (["b", "edu-drv"], {"edu-drv": ["x=1"]})


def test_secret_and_tolerations_and_plain_registry() -> None:
    """One Secret both pulls and pushes."""
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    spec = spec_of(spec={"imageRepoSecret": {"name": "s"}, "tolerations": tolerations}, registryTLS={"insecure": True})
    assert spec["registry"] == {"secretRef": {"name": "s"}, "plainHttp": True}
    assert spec["imagePullSecrets"] == [{"name": "s"}]
    assert spec["tolerations"] == tolerations


def test_names_of_the_module_are_written_into_the_image() -> None:
    """They are the same for every kernel, so one mapping does."""
    mapping = {"regexp": "^6", "containerImage": "r.example.com/$MOD_NAMESPACE/${MOD_NAME}:1"}
    spec = spec_of(mapping)
    assert spec["kernelMappings"] == [{"regexp": "^6.*", "image": "r.example.com/drivers/edu:1", "dirName": "/opt"}]


def test_a_literal_kernel_is_written_into_the_image() -> None:
    """It is known without a cluster."""
    spec = spec_of({**BY_KERNEL, "literal": K1, "regexp": None})
    assert [item["image"] for item in spec["kernelMappings"]] == [f"r.example.com/drivers/edu:{K1}"]


def test_an_image_of_each_kernel_is_a_mapping_of_each_kernel() -> None:
    """Of those that take this mapping first; each is named in full, also with the ``+`` that KMM leaves out."""
    first = {"literal": K1, "containerImage": "r.example.com/drivers/edu:first"}
    conversion = convert(module(first, BY_KERNEL), Known(kernels=(K1, K2, "6.9.1+", "5.1.0")))
    assert conversion.driver is not None
    mappings = conversion.driver["spec"]["kernelMappings"]
    assert [(item["literal"], item["image"].partition(":")[2]) for item in mappings] == [
        (K1, "first"), (K2, K2), ("6.9.1+", "6.9.1"),
    ]  # fmt: skip
    assert "2 of the kernels" in said(conversion, errors=False)[f"{CONTAINER}.kernelMappings.1.regexp"]


def test_without_kernels_an_image_of_each_kernel_is_an_error() -> None:
    """And no driver is made where no mapping is left: it would be built for every kernel."""
    conversion = convert(module(BY_KERNEL), Known())
    assert "--kernels" in said(conversion, errors=True)[f"{CONTAINER}.kernelMappings.0.regexp"]
    assert conversion.driver is None


def test_kernels_of_no_mapping_are_said() -> None:
    """The flag was given, and does not help here."""
    conversion = convert(module(PLAIN, BY_KERNEL), Known(kernels=("5.1.0",)))
    assert "matches none" in said(conversion)[f"{CONTAINER}.kernelMappings.1.regexp"]


def test_a_later_mapping_takes_no_kernel_of_an_earlier_one() -> None:
    """A new kernel of the first one gets no image of the second one."""
    last = {"regexp": ".*", "containerImage": "r.example.com/drivers/edu:all"}
    conversion = convert(module(BY_KERNEL, last), Known(kernels=(K1,)))
    assert conversion.driver is not None
    kinds = [tuple(item)[:2] for item in conversion.driver["spec"]["kernelMappings"]]
    assert kinds == [("literal", "image"), ("regexp",), ("regexp", "image")]


BUILD = {
    "dockerfileConfigMap": {"name": "edu-dockerfile"},
    "buildArgs": [{"name": "A", "value": "b"}],
    "secrets": [{"name": "token"}],
    "kanikoParams": {"tag": "v1"},
    "baseImageRegistryTLS": {"insecure": True},
    "selector": {"node-role.kubernetes.io/builder": ""},
}


@pytest.mark.parametrize("at", ["mapping", "container"])
def test_a_build_leaves_the_kernels_that_were_built_and_says_what_further_ones_need(at: str) -> None:
    """Images of KMM's builds are used; a mapping without one waits for a source."""
    mapping = {**BY_KERNEL, **({"build": BUILD} if at == "mapping" else {})}
    path = f"{CONTAINER}.kernelMappings.0.build" if at == "mapping" else f"{CONTAINER}.build"
    conversion = convert(module(mapping, **({} if at == "mapping" else {"build": BUILD})), Known(kernels=(K1,)))
    assert conversion.driver is not None
    spec = conversion.driver["spec"]
    assert [tuple(item)[:2] for item in spec["kernelMappings"]] == [("literal", "image"), ("regexp",)]
    assert spec["build"] == {"builder": "job", "secrets": [{"name": "token"}]}
    errors, warnings = said(conversion, errors=True), said(conversion, errors=False)
    assert errors.keys() == {f"{path}.{name}" for name in ("dockerfileConfigMap", "buildArgs", "baseImageRegistryTLS")}
    assert warnings.keys() == {f"{path}.kanikoParams", f"{path}.selector", f"{CONTAINER}.kernelMappings.0.regexp"}


def test_a_kernel_that_kmm_has_built_for_runs_its_image_and_another_waits_for_a_source() -> None:
    """Nothing is built of a ConfigMap that is not there, and ``gate`` says no."""
    kernels = Known(kernels=(KERNEL,))
    made = convert(module({**BY_KERNEL, "build": {"dockerfileConfigMap": {"name": "a"}}}), kernels).driver
    assert made is not None
    made["metadata"]["uid"] = "uid"
    driver = driver_container.parse(made)
    missing = SourceMissing(message="ConfigMap drivers/edu-source does not exist")
    seen = snapshot(node(), node("node-b", OTHER_KERNEL), drivers=(driver,), sources={driver.key: missing})
    targets = resolve(seen, driver, spec_of_driver(driver), SETTINGS.template_versions).targets
    prebuilt, blocked = sorted(targets, key=lambda target: target.target.kernel_version != KERNEL)
    assert isinstance(prebuilt, PrebuiltTarget)
    assert str(prebuilt.image) == f"r.example.com/drivers/edu:{KERNEL}"
    assert isinstance(blocked, BlockedTarget)
    assert blocked.reason is Reason.SOURCE_MISSING


def test_a_signature_of_modules_is_one_of_driver_containers() -> None:
    """With the same Secrets; what KMM names besides is said."""
    sign = {"keySecret": {"name": "k"}, "certSecret": {"name": "c"}, "filesToSign": ["/opt/a.ko"],
            "unsignedImage": "r.example.com/unsigned:1"}  # fmt: skip
    conversion = convert(module(sign=sign), Known())
    assert conversion.driver is not None
    assert conversion.driver["spec"]["signing"] == {
        "keySecretRef": {"name": "k"}, "certificateSecretRef": {"name": "c"},
    }  # fmt: skip
    assert said(conversion, errors=True).keys() == {f"{CONTAINER}.sign.unsignedImage"}
    assert said(conversion, errors=False).keys() == {f"{CONTAINER}.sign.filesToSign"}


def test_other_keys_of_one_mapping_are_an_error() -> None:
    """The first ones are written."""
    other = {"keySecret": {"name": "k2"}, "certSecret": {"name": "c2"}}
    sign = {"keySecret": {"name": "k"}, "certSecret": {"name": "c"}}
    conversion = convert(module({**PLAIN, "sign": other}, sign=sign), Known())
    assert said(conversion).keys() == {f"{CONTAINER}.kernelMappings.0.sign"}


@pytest.mark.parametrize(
    ("first", "second", "wanted", "is_said"),
    [
        pytest.param({}, {}, ["a"], False, id="of the container"),
        pytest.param(
            {"inTreeModulesToRemove": ["b"]}, {"inTreeModuleToRemove": "b"}, ["b"], False, id="the same in all"
        ),
        pytest.param({"inTreeModulesToRemove": ["b"]}, {}, ["a"], True, id="different"),
    ],
)
def test_modules_of_the_kernel_that_go_are_one_list(
    first: Json, second: Json, wanted: list[str], *, is_said: bool
) -> None:
    """What differs between kernels is an error: a module would go where it was not asked to."""
    mappings = {**PLAIN, **first}, {**PLAIN, "literal": K2, **second}
    conversion = convert(module(*mappings, inTreeModulesToRemove=["a"]), Known())
    assert conversion.driver is not None
    assert conversion.driver["spec"]["module"]["inTreeModulesToRemove"] == wanted
    assert (said(conversion).keys() == {f"{CONTAINER}.kernelMappings.0.inTreeModulesToRemove"}) is is_said


def test_a_registry_of_some_kernels_without_tls_is_an_error() -> None:
    """There is one setting; so is a certificate that nobody verifies."""
    mappings = {**PLAIN, "registryTLS": {"insecure": True, "insecureSkipTLSVerify": True}}, {**PLAIN, "literal": K2}
    conversion = convert(module(*mappings), Known())
    assert said(conversion, errors=True).keys() == {
        f"{CONTAINER}.registryTLS", f"{CONTAINER}.kernelMappings.0.registryTLS.insecureSkipTLSVerify",
    }  # fmt: skip


PLUGIN = {"image": "r.example.com/plugin:1", "command": ["/plugin"], "args": ["-v"]}


def test_a_plain_device_plugin_is_a_stage() -> None:
    """KMM runs it privileged; the name of its resource comes from a flag."""
    known = Known(resources={"drivers/edu": "example.com/edu"})
    spec = spec_of(spec={"devicePlugin": {"container": PLUGIN}}, known=known)
    assert spec["stages"] == {"devicePlugin": {**PLUGIN, "resourceName": "example.com/edu", "privileged": True}}


@pytest.mark.parametrize(
    ("plugin", "path"),
    [
        pytest.param({"container": PLUGIN}, "", id="no resource named"),
        pytest.param({"container": {**PLUGIN, "env": [{"name": "A", "value": "b"}]}}, ".container.env", id="variables"),
        pytest.param({"container": PLUGIN, "volumes": [{"name": "a"}]}, ".volumes", id="volumes"),
        pytest.param({"container": PLUGIN, "initContainer": {"image": "a"}}, ".initContainer", id="an init container"),
        pytest.param({"container": PLUGIN, "serviceAccountName": "a"}, ".serviceAccountName", id="an account"),
    ],
)
def test_another_device_plugin_is_an_error_and_nodes_get_the_labels_of_stages(plugin: Json, path: str) -> None:
    """A DaemonSet of the admin's own selects them."""
    conversion = convert(module(spec={"devicePlugin": plugin}), Known(resources={"edu": "a.b/c"} if path else {}))
    assert said(conversion).keys() == {f"spec.devicePlugin{path}"}
    assert conversion.driver is not None
    assert conversion.driver["spec"]["stages"] == {}


def test_what_the_pods_of_a_plugin_have_anyway_is_a_warning() -> None:
    """Nothing has to be done for it."""
    container = {**PLUGIN, "imagePullPolicy": "Always", "resources": {"limits": {"cpu": 1}}}
    plugin = {"container": container, "automountServiceAccountToken": False}
    conversion = convert(module(spec={"devicePlugin": plugin}), Known(resources={"edu": "a.b/c"}))
    assert said(conversion, errors=True) == {}
    assert said(conversion).keys() == {
        "spec.devicePlugin.container.imagePullPolicy",
        "spec.devicePlugin.container.resources",
    }


SET_BY_KMM = [
    {"name": "CDI_ROOT", "value": "/var/run/cdi"},
    {"name": "KUBELET_REGISTRAR_DIRECTORY_PATH", "value": "/var/lib/kubelet/plugins_registry"},
    {"name": "KUBELET_PLUGINS_DIRECTORY_PATH", "value": "/var/lib/kubelet/plugins"},
]
NODE: Json = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
DRA: Json = {"driverName": "gpu.example.com", "serviceAccountName": "dra", "container": PLUGIN}


def test_a_dra_driver_is_a_stage() -> None:
    """Privileged, with the variables that KMM sets; who has to allow its account is said."""
    env = [NODE, {"name": "A", "value": "b"}, {"name": "CDI_ROOT", "value": "/etc/cdi"}]
    conversion = convert(module(spec={"dra": {**DRA, "container": {**PLUGIN, "env": env}}}), Known())
    assert conversion.driver is not None
    others = [{"name": "CDI_ROOT", "value": "/etc/cdi"}, *SET_BY_KMM[1:], {"name": "A", "value": "b"}]
    dra = {"driver": "gpu.example.com", "serviceAccountName": "dra", "env": others}
    assert conversion.driver["spec"]["stages"] == {"devicePlugin": {**PLUGIN, "privileged": True, "dra": dra}}
    assert said(conversion, errors=True) == {}
    assert said(conversion).keys() == {
        "spec.dra.container", "spec.dra.container.env.0", "spec.dra.serviceAccountName",
    }  # fmt: skip
    assert not read_spec(conversion.driver["spec"]).problems


def test_a_dra_driver_without_an_account_has_the_default_one_as_with_kmm() -> None:
    """A variable for KMM's probe is its own."""
    container = {**PLUGIN, "env": [{"name": "HEALTHCHECK_PORT", "value": "1"}]}
    dra = {"driverName": "gpu.example.com", "container": container, "automountServiceAccountToken": True}
    conversion = convert(module(spec={"dra": dra}), Known())
    assert conversion.driver is not None
    made = conversion.driver["spec"]["stages"]["devicePlugin"]["dra"]
    assert made["serviceAccountName"] == "default"
    assert made["env"][-1] == {"name": "HEALTHCHECK_PORT", "value": "1"}
    assert said(conversion).keys() == {"spec.dra.automountServiceAccountToken", "spec.dra.serviceAccountName"}


@pytest.mark.parametrize(
    ("changes", "path", "is_made"),
    [
        pytest.param({"deviceClasses": [{"name": "gpu"}]}, ".deviceClasses", True, id="classes"),
        pytest.param({"volumes": [{"name": "a"}]}, ".volumes", False, id="volumes"),
        pytest.param({"initContainer": {"image": "a"}}, ".initContainer", False, id="an init container"),
        pytest.param({"container": {**PLUGIN, "volumeMounts": [{"name": "a"}]}}, ".container.volumeMounts", False,
                     id="mounts"),
        pytest.param({"container": {**PLUGIN, "env": [{**NODE, "name": "A"}]}}, ".container.env.0.valueFrom", True,
                     id="a variable from elsewhere"),
        pytest.param({"container": {**PLUGIN, "env": [{"name": "a.b", "value": "c"}]}}, ".container.env.0.name", True,
                     id="a name that no stage has"),
        pytest.param({"container": {**PLUGIN, "env": [{"value": "c"}]}}, ".container.env.0.name", True,
                     id="a variable without a name"),
        pytest.param({"container": {**PLUGIN, "env": [{"name": f"A{number}"} for number in range(62)]}},
                     ".container.env", True, id="too many with those that KMM sets"),
        pytest.param({"driverName": None}, ".driverName", True, id="no name"),
    ],
)  # fmt: skip
def test_what_a_dra_driver_has_and_a_stage_has_not_is_an_error(changes: Json, path: str, is_made: bool) -> None:
    """With another pod than a stage has, nodes get the labels alone."""
    conversion = convert(module(spec={"dra": {**DRA, **changes}}), Known())
    assert said(conversion, errors=True).keys() == {f"spec.dra{path}"}
    assert conversion.driver is not None
    assert bool(conversion.driver["spec"]["stages"]) is is_made


@pytest.mark.parametrize(
    ("change", "path"),
    [
        pytest.param({"modprobe": {"moduleName": "edu", "args": {"load": ["-f"]}}}, "modprobe.args", id="arguments"),
        pytest.param({"modprobe": {"rawArgs": {"load": ["edu"], "unload": ["edu"]}}}, "modprobe.rawArgs", id="raw"),
        pytest.param({"modprobe": {}}, "modprobe.moduleName", id="no module"),
        pytest.param({"newField": 1}, "newField", id="unknown"),
        pytest.param({"containerImage": 5}, "containerImage", id="not a string"),
        pytest.param({"modprobe": []}, "modprobe", id="not an object"),
    ],
)
def test_what_has_no_counterpart_is_an_error(change: Json, path: str) -> None:
    """By the path of the field."""
    assert f"{CONTAINER}.{path}" in said(convert(module(**change), Known()), errors=True)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({"other": 1}, "spec.other", id="unknown"),
        pytest.param(
            {"selector": {"kmm.node.kubernetes.io/a.b.ready": ""}},
            "spec.selector.kmm.node.kubernetes.io/a.b.ready",
            id="a label of KMM",
        ),
    ],
)
def test_what_a_module_says_beside_is_an_error(spec: Json, path: str) -> None:
    """By the path of the field."""
    assert path in said(convert(module(spec=spec), Known()), errors=True)


def test_what_needs_nothing_is_a_warning() -> None:
    """The driver works the same."""
    plain = module(version="1.2", imagePullPolicy="Always", spec={"imageRebuildTriggerGeneration": 3})
    plain["spec"]["moduleLoader"]["serviceAccountName"] = "a"
    conversion = convert(plain, Known())
    assert said(conversion, errors=True) == {}
    assert said(conversion).keys() == {
        f"{CONTAINER}.version", f"{CONTAINER}.imagePullPolicy", "spec.imageRebuildTriggerGeneration",
        "spec.moduleLoader.serviceAccountName",
    }  # fmt: skip
    assert conversion.driver is not None
    assert conversion.driver["spec"]["version"] == "1.2"


def test_a_module_that_loads_nothing_is_no_driver() -> None:
    """KMM allows one with a device plugin alone."""
    plain = module()
    del plain["spec"]["moduleLoader"]
    conversion = convert(plain, Known())
    assert conversion.driver is None
    assert "spec.moduleLoader" in said(conversion, errors=True)
