{{/* made by tools/chart/generate.py */}}
{{- define "trainwright.args" -}}
{{- if ne .Values.scope.namespace "" }}
- {{ printf "--namespace=%s" .Values.scope.namespace | quote }}
{{- end }}
{{- range .Values.jobs.enableSchemes }}
- --enable-scheme={{ . }}
{{- end }}
{{- if .Values.jobs.wholeGroupRestart }}
- --whole-group-restart
{{- end }}
{{- if not (kindIs "invalid" .Values.jobs.deadNodeSeconds) }}
- --dead-node-seconds={{ int64 .Values.jobs.deadNodeSeconds }}
{{- end }}
{{- if .Values.jobs.readFailedPodLogs }}
- --read-failed-pod-logs
{{- end }}
{{- if ne .Values.jobs.clusterDomain "" }}
- {{ printf "--cluster-domain=%s" .Values.jobs.clusterDomain | quote }}
{{- end }}
{{- if ne .Values.gangScheduler.name "" }}
- {{ printf "--gang-scheduler-name=%s" .Values.gangScheduler.name | quote }}
{{- end }}
{{- if ne .Values.pytorch.initContainer.image "alpine:3.10" }}
- {{ printf "--pytorch-init-container-image=%s" .Values.pytorch.initContainer.image | quote }}
{{- end }}
{{- if ne (int64 .Values.pytorch.initContainer.maxTries) 100 }}
- --pytorch-init-container-max-tries={{ int64 .Values.pytorch.initContainer.maxTries }}
{{- end }}
{{- if .Values.pytorch.initContainer.waitForPort }}
- --pytorch-init-container-wait-for-port
{{- end }}
{{- if ne .Values.mpi.kubectlDeliveryImage "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest" }}
- {{ printf "--mpi-kubectl-delivery-image=%s" .Values.mpi.kubectlDeliveryImage | quote }}
{{- end }}
{{- if .Values.operator.installCrds }}
- --install-crds
{{- end }}
{{- if ne (int64 .Values.operator.controllerThreads) 64 }}
- --controller-threads={{ int64 .Values.operator.controllerThreads }}
{{- end }}
{{- if ne (int64 .Values.operator.parallelWrites) 32 }}
- --parallel-writes={{ int64 .Values.operator.parallelWrites }}
{{- end }}
{{- if ne (float64 .Values.operator.kubeApiQps) 0.0 }}
- --kube-api-qps={{ .Values.operator.kubeApiQps }}
{{- end }}
{{- if ne (int64 .Values.operator.kubeApiBurst) 30 }}
- --kube-api-burst={{ int64 .Values.operator.kubeApiBurst }}
{{- end }}
{{- if ne .Values.operator.kubeconfig "" }}
- {{ printf "--kubeconfig=%s" .Values.operator.kubeconfig | quote }}
{{- end }}
{{- if ne .Values.operator.context "" }}
- {{ printf "--context=%s" .Values.operator.context | quote }}
{{- end }}
{{- if .Values.leaderElection.enabled }}
- --leader-elect
{{- end }}
{{- if ne .Values.leaderElection.id "1ca428e5.training-operator.kubeflow.org" }}
- {{ printf "--leader-election-id=%s" .Values.leaderElection.id | quote }}
{{- end }}
{{- if ne .Values.leaderElection.namespace "" }}
- {{ printf "--leader-election-namespace=%s" .Values.leaderElection.namespace | quote }}
{{- end }}
{{- if ne .Values.leaderElection.leaseDuration "15s" }}
- {{ printf "--leader-election-lease-duration=%s" .Values.leaderElection.leaseDuration | quote }}
{{- end }}
{{- if ne .Values.leaderElection.renewDeadline "10s" }}
- {{ printf "--leader-election-renew-deadline=%s" .Values.leaderElection.renewDeadline | quote }}
{{- end }}
{{- if ne .Values.leaderElection.retryPeriod "2s" }}
- {{ printf "--leader-election-retry-period=%s" .Values.leaderElection.retryPeriod | quote }}
{{- end }}
{{- if ne .Values.log.level "" }}
- {{ printf "--zap-log-level=%s" .Values.log.level | quote }}
{{- end }}
{{- if ne .Values.log.encoder "" }}
- {{ printf "--zap-encoder=%s" .Values.log.encoder | quote }}
{{- end }}
{{- if ne .Values.log.timeEncoding "" }}
- {{ printf "--zap-time-encoding=%s" .Values.log.timeEncoding | quote }}
{{- end }}
{{- if not (kindIs "invalid" .Values.log.development) }}
- --zap-devel={{ .Values.log.development }}
{{- end }}
{{- if ne .Values.log.stacktraceLevel "" }}
- {{ printf "--zap-stacktrace-level=%s" .Values.log.stacktraceLevel | quote }}
{{- end }}
{{- if .Values.log.verbose }}
- --verbose
{{- end }}
{{- end }}
