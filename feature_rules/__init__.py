"""The rule engine: NodeFeatureRule of Node Feature Discovery (``nfd.k8s-sigs.io/v1alpha1``), over features in memory.

``load`` makes rules of YAML, ``match`` decides, ``template`` expands, ``run`` puts all rules to work in order. Pure: no
module here reads a file.
"""
