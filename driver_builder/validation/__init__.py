"""What a driver has to do on a node besides being loaded: the pods that run ``spec.validation``. Pure."""
