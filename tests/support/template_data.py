"""What the tests of rule templates expand them over."""

DATA = {
    "pci": {"device": [{"class": "0300", "vendor": "10de"}, {"class": "0200", "vendor": "8086"}], "none": []},
    "kernel": {"version": [{"Name": "full", "Value": "6.1.0-31-amd64"}, {"Name": "major", "Value": "6"}]},
}
