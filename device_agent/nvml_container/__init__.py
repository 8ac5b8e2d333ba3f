"""The container ``nvml``: asks NVIDIA's library in a child, and says over a socket what it said (docs/decisions/0162).

::

    agent  <-- socket --  supervisor (resident, touches no driver)  <-- pipe --  child (NVML, /dev, /proc, DRM drivers)

Only the child's modules (``asking``, ``cards``, ``mig_changing``, ``sampling``) import nvml_inventory.
"""
