{{/* A DaemonSet of the workers: .name, and whether it is the one of the nodes with GPUs (.gpu, docs/gpu.md). */}}
{{- define "nfd-worker" }}
{{- $worker := .root.Values.nfdWorker }}
{{- $gpu := $worker.gpu }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "labels" .name | nindent 4 }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: {{ $worker.maxUnavailable }}
  template:
    metadata:
      labels:
        {{- include "labels" .name | nindent 8 }}
    spec:
      serviceAccountName: nfd-worker
      {{- include "pull-secrets" .root | indent 6 }}
      priorityClassName: {{ $worker.priorityClassName }}
      {{- with merge (dict) (ternary $gpu.nodeSelector dict .gpu) $worker.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if and $gpu.enabled (not .gpu) }}
      # The other nodes have nfd-worker-gpu.
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  {{- range $key, $value := $gpu.nodeSelector }}
                  - {key: {{ $key }}, operator: NotIn, values: [{{ $value | quote }}]}
                  {{- end }}
      {{- end }}
      {{- if and .gpu $gpu.runtimeClassName }}
      runtimeClassName: {{ $gpu.runtimeClassName }}
      {{- end }}
      tolerations:
        {{- toYaml $worker.tolerations | nindent 8 }}
      terminationGracePeriodSeconds: 10
      securityContext:
        runAsNonRoot: true
        runAsUser: 65534
        runAsGroup: 65534
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: nfd-worker
          image: {{ include "image" (list .root "nfd-worker" "nfdWorker") }}
          {{- include "pull-policy" .root | indent 10 }}
          # With hostNetwork the port is one of the node: set another --port where it is in use.
          args:
            {{- concat (list "run" (printf "--port=%d" (int $worker.port))) $worker.args | toYaml | nindent 12 }}
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            {{- if and .gpu $gpu.runtimeClassName }}
            # What NVIDIA's runtime gives the container: all devices, and the library of NVML.
            - name: NVIDIA_VISIBLE_DEVICES
              value: all
            - name: NVIDIA_DRIVER_CAPABILITIES
              value: utility
            {{- end }}
            {{- include "env" $worker.env | indent 12 }}
          ports:
            - name: http
              containerPort: {{ $worker.port }}
          startupProbe:
            httpGet:
              path: /healthz
              port: http
            periodSeconds: 5
            failureThreshold: 24
          livenessProbe:
            httpGet:
              path: /healthz
              port: http
            periodSeconds: 30
            timeoutSeconds: 5
          readinessProbe:
            httpGet:
              path: /healthz
              port: http
            periodSeconds: 30
            timeoutSeconds: 5
          # The resident process uses up to 22 MiB; a child process, which lives for a second, up to 50 MiB more.
          resources:
            {{- toYaml $worker.resources | nindent 12 }}
          securityContext:
            {{- if and .gpu (not $gpu.runtimeClassName) }}
            # Without NVIDIA's runtime nothing else lets a container open the device nodes of the driver.
            privileged: true
            readOnlyRootFilesystem: true
            {{- else }}
            {{- include "unprivileged" . | nindent 12 }}
            {{- end }}
          volumeMounts:
            - name: config
              mountPath: /etc/kubernetes/node-feature-discovery
              readOnly: true
            - name: rules
              mountPath: /etc/kubernetes/node-feature-discovery/rules.d
              readOnly: true
            # The parent of the node's features.d and custom.d. A mount of each one would show the old directory after it
            # was deleted and created again.
            - name: host-node-feature-discovery
              mountPath: /host/etc/kubernetes/node-feature-discovery
              readOnly: true
            - name: host-sys
              mountPath: /host/sys
              readOnly: true
            - name: host-os-release
              mountPath: /host/etc/os-release
              readOnly: true
            - name: host-boot
              mountPath: /host/boot
              readOnly: true
            - name: host-lib-modules
              mountPath: /host/lib/modules
              readOnly: true
            - name: host-usr-lib
              mountPath: /host/usr/lib
              readOnly: true
            {{- if .gpu }}
            # The libraries of a driver container; they come and go with it.
            - name: host-run-nvidia
              mountPath: /host/run/nvidia
              mountPropagation: HostToContainer
              readOnly: true
            # Where device-agent reports how it shares the GPUs. Empty on a node without it, and there for one that comes.
            - name: host-run-agent
              mountPath: /host/run/driverwright-agent
              readOnly: true
            {{- if not $gpu.runtimeClassName }}
            # A device node that the driver creates later is seen as well.
            - name: host-dev
              mountPath: /dev
            {{- end }}
            {{- end }}
      volumes:
        - name: config
          configMap:
            name: nfd-worker-conf
            optional: true
        - name: rules
          configMap:
            name: nfd-worker-rules
            optional: true
        - name: host-node-feature-discovery
          hostPath:
            path: /etc/kubernetes/node-feature-discovery
            type: DirectoryOrCreate
        # /proc needs no mount: /host/proc is the container's own, and the files read there are the kernel's.
        # /usr/src, which can have a kernel's configuration, is not mounted: systems with an immutable root do not have it,
        # and the pod would not start. Most nodes have /proc/config.gz or a file in /boot.
        - name: host-sys
          hostPath:
            path: /sys
        - name: host-os-release
          hostPath:
            path: /etc/os-release
        - name: host-boot
          hostPath:
            path: /boot
        - name: host-lib-modules
          hostPath:
            path: /lib/modules
        - name: host-usr-lib
          hostPath:
            path: /usr/lib
        {{- if .gpu }}
        - name: host-run-nvidia
          hostPath:
            path: /run/nvidia
            type: DirectoryOrCreate
        - name: host-run-agent
          hostPath:
            path: /run/driverwright-agent
            type: DirectoryOrCreate
        {{- if not $gpu.runtimeClassName }}
        - name: host-dev
          hostPath:
            path: /dev
        {{- end }}
        {{- end }}
{{- end }}
