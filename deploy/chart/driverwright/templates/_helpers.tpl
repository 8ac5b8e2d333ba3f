{{/* The reference of an image of ours, by (list $ NAME KEY): KEY of .Values.images wins. */}}
{{- define "image" -}}
{{- $images := (index . 0).Values.images -}}
{{- get $images (index . 2) | default (printf "%s/%s:%s" $images.repository (index . 1) (toString $images.tag)) -}}
{{- end }}

{{/* Labels of a workload and of its pods, by its name. They are in selectors, which cannot change. */}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: driverwright
{{- end }}

{{- define "pull-policy" -}}
{{- with .Values.images.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- define "pull-secrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Variables of a program's values, as items of a list. */}}
{{- define "env" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Selects the pods of all programs, and no others: a driver's pods are named by the driver. */}}
{{- define "programs" -}}
matchLabels:
  app.kubernetes.io/part-of: driverwright
matchExpressions:
  - key: app.kubernetes.io/name
    operator: In
    values: [nfd-worker, nfd-worker-gpu, driver-builder, device-agent]
{{- end }}

{{/* The configuration of the device agent. With what has values of its own it is written anew, without comments: the value may be in any form of YAML. */}}
{{- define "device-agent-config" -}}
{{- $agent := .Values.deviceAgent -}}
{{- range $name := list "exporter" "memory" -}}
{{- if hasKey (fromYaml $agent.config) $name -}}
{{- fail (printf "deviceAgent.config: remove %s from it, and write it in the value deviceAgent.%s: what the pods need for it comes from there, and the chart adds it to the configuration" $name $name) -}}
{{- end -}}
{{- end -}}
{{- $own := dict -}}
{{- if $agent.nvidia.enabled -}}
{{- $nvidia := pick $agent.nvidia "migStrategy" "sharedDevicesAllocationPolicy" "health" -}}
{{- if $agent.nvidia.libraries.path -}}
{{- $_ := set $nvidia "libraries" $agent.nvidia.libraries -}}
{{- end -}}
{{- if include "mig-layouts" . -}}
{{- $_ := set $nvidia "mig" (pick $agent.nvidia.mig "enabled" "drain") -}}
{{- end -}}
{{- $_ := set $own "nvidia" $nvidia -}}
{{- end -}}
{{- if $agent.exporter.enabled -}}
{{- $_ := set $own "exporter" (pick $agent.exporter "enabled" "port" "perPod" "hostnameLabel") -}}
{{- end -}}
{{- if include "limits-memory" . -}}
{{- $_ := set $own "memory" (pick $agent.memory "mode" "limits" "default" "graceSeconds" "dryRun") -}}
{{- end -}}
{{- if $own -}}
{{- $config := fromYaml $agent.config -}}
{{- range $name := keys $own | sortAlpha -}}
{{- if or (hasKey $config "Error") (hasKey $config $name) -}}
{{- $switch := ternary "mode" "enabled" (eq $name "memory") -}}
{{- fail (printf "deviceAgent.config: with deviceAgent.%s.%s it has to be an object without %s, which is written from deviceAgent.%s" $name $switch $name $name) -}}
{{- end -}}
{{- end -}}
{{- toYaml (merge $own $config) -}}
{{- else -}}
{{- $agent.config -}}
{{- end -}}
{{- end }}

{{/* Not empty where the memory of shared cards is limited. YAML reads a bare "off" as false. */}}
{{- define "limits-memory" -}}
{{- if has .Values.deviceAgent.memory.mode (list "watch" "driver") -}}
true
{{- end -}}
{{- end }}

{{/* Not empty where the agent's pods see the node's processes. */}}
{{- define "sees-processes" -}}
{{- $exporter := .Values.deviceAgent.exporter -}}
{{- if or (and $exporter.enabled $exporter.perPod) (include "limits-memory" .) -}}
true
{{- end -}}
{{- end }}

{{/* Not empty where Prometheus gets metrics of devices: of the agents here, or of drivers. */}}
{{- define "has-exporters" -}}
{{- if or .Values.deviceAgent.exporter.enabled .Values.deviceAgent.exporter.podMonitor.enabled -}}
true
{{- end -}}
{{- end }}

{{/* Not empty where there are metrics for the rules and the dashboard of devices. */}}
{{- define "has-device-metrics" -}}
{{- if or (include "has-exporters" .) (and .Values.deviceAgent.enabled (include "limits-memory" .)) -}}
true
{{- end -}}
{{- end }}

{{/* Selects the pods with an exporter, those of drivers as well. */}}
{{- define "exporters" -}}
driverwright.io/exporter: 'true'
{{- end }}

{{/* The ConfigMap with profiles of GPUs, by its name; empty where there are none. Refuses values that do not fit each other. */}}
{{- define "gpu-profiles" -}}
{{- $nvidia := .Values.deviceAgent.nvidia -}}
{{- $profiles := $nvidia.profiles -}}
{{- if and $profiles.name $profiles.map -}}
{{- fail "deviceAgent.nvidia.profiles: name is a ConfigMap of yours, map is one of the chart: set one of them" -}}
{{- end -}}
{{- if and (or $profiles.name $profiles.map $profiles.default) (not $nvidia.enabled) -}}
{{- fail "deviceAgent.nvidia.profiles: profiles share NVIDIA's devices: set deviceAgent.nvidia.enabled as well" -}}
{{- end -}}
{{- if and $profiles.default (not (or $profiles.name $profiles.map)) -}}
{{- fail "deviceAgent.nvidia.profiles.default: there are no profiles: set name or map as well" -}}
{{- end -}}
{{- $key := $profiles.default | default "default" -}}
{{- if and $profiles.map (not (hasKey $profiles.map $key)) -}}
{{- fail (printf "deviceAgent.nvidia.profiles: map has no profile %s for nodes without the label: name one of these in default: %s" $key (keys $profiles.map | sortAlpha | join ", ")) -}}
{{- end -}}
{{- ternary "device-agent-profiles" $profiles.name (not (empty $profiles.map)) -}}
{{- end }}

{{/* The ConfigMap with MIG layouts, by its name; empty where none are made. Refuses values that do not fit each other. */}}
{{- define "mig-layouts" -}}
{{- $nvidia := .Values.deviceAgent.nvidia -}}
{{- if ($nvidia.mig | default dict).enabled -}}
{{- if not $nvidia.enabled -}}
{{- fail "deviceAgent.nvidia.mig.enabled: MIG layouts are those of NVIDIA's devices: set deviceAgent.nvidia.enabled as well" -}}
{{- end -}}
{{- if not $nvidia.mig.configMap -}}
{{- fail "deviceAgent.nvidia.mig.enabled: there are no layouts: set configMap as well" -}}
{{- end -}}
{{- if and (include "gpu-profiles" .) (not $nvidia.profiles.followNodeLabel) -}}
{{- fail "deviceAgent.nvidia.mig.enabled: the agents have a token with it, by which they follow the label of profiles as well: set profiles.followNodeLabel to true" -}}
{{- end -}}
{{- $nvidia.mig.configMap -}}
{{- end -}}
{{- end }}

{{/* For what the labels of a Node are followed, mig (for profiles as well) or profiles: the agents have a token then, of an account of its own. */}}
{{- define "follows-node-label" -}}
{{- if and (include "mig-layouts" .) .Values.deviceAgent.enabled -}}
mig
{{- else if and .Values.deviceAgent.enabled .Values.deviceAgent.nvidia.profiles.followNodeLabel (include "gpu-profiles" .) -}}
profiles
{{- end -}}
{{- end }}

{{- define "device-agent-account" -}}
device-agent{{ with include "follows-node-label" . }}-{{ . }}{{ end }}
{{- end }}
