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

{{/* The configuration of the device agent. With NVIDIA's devices it is written anew, without comments: the value may be in any form of YAML. */}}
{{- define "device-agent-config" -}}
{{- $nvidia := .Values.deviceAgent.nvidia -}}
{{- if $nvidia.enabled -}}
{{- $config := fromYaml .Values.deviceAgent.config -}}
{{- if or (hasKey $config "Error") (hasKey $config "nvidia") -}}
{{- fail "deviceAgent.config: with deviceAgent.nvidia.enabled it has to be an object without nvidia, which is written from deviceAgent.nvidia" -}}
{{- end -}}
{{- $own := pick $nvidia "migStrategy" "sharedDevicesAllocationPolicy" "health" -}}
{{- if $nvidia.libraries.path -}}
{{- $_ := set $own "libraries" $nvidia.libraries -}}
{{- end -}}
{{- toYaml (set $config "nvidia" $own) -}}
{{- else -}}
{{- .Values.deviceAgent.config -}}
{{- end -}}
{{- end }}
