{{/* The name of all objects: fullnameOverride, or the release's name with the chart's. */}}
{{- define "trainwright.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The name of objects without a namespace: operators of several namespaces must not share them. */}}
{{- define "trainwright.clusterName" -}}
{{- $name := include "trainwright.fullname" . }}
{{- ternary (printf "%s-%s" $name .Values.scope.namespace) $name (ne .Values.scope.namespace "") }}
{{- end }}

{{- define "trainwright.serviceAccountName" -}}
{{- default (include "trainwright.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "trainwright.serviceName" -}}
{{- default (include "trainwright.fullname" .) .Values.webhook.serviceName }}
{{- end }}

{{- define "trainwright.secretName" -}}
{{- default (printf "%s-webhook-cert" (include "trainwright.fullname" .)) .Values.webhook.secretName }}
{{- end }}

{{- define "trainwright.webhookConfigurationName" -}}
{{- default (include "trainwright.clusterName" .) .Values.webhook.configurationName }}
{{- end }}

{{- define "trainwright.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "trainwright.selectorLabels" -}}
{{- if .Values.selectorLabels }}
{{- toYaml .Values.selectorLabels }}
{{- else -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "trainwright.labels" -}}
{{- toYaml (merge (dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") "app.kubernetes.io/managed-by" .Release.Service) (fromYaml (include "trainwright.ownLabels" .))) }}
{{- end }}

{{/* Labels of pods: without Helm's own, which would restart them for each new version of the chart. */}}
{{- define "trainwright.podLabels" -}}
{{- toYaml (merge (deepCopy .Values.podLabels) (fromYaml (include "trainwright.selectorLabels" .)) (fromYaml (include "trainwright.ownLabels" .))) }}
{{- end }}

{{- define "trainwright.ownLabels" -}}
{{- toYaml (merge (deepCopy .Values.commonLabels) (dict
  "app.kubernetes.io/name" (default .Chart.Name .Values.nameOverride)
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/component" "operator")) }}
{{- end }}

{{/* Flags that depend on other values; those of one value are in _args.tpl. */}}
{{- define "trainwright.derivedArgs" -}}
{{- if ne (int64 .Values.metrics.port) 8080 }}
- --metrics-bind-address={{ include "trainwright.address" .Values.metrics.port }}
{{- end }}
{{- if ne (int64 .Values.healthProbe.port) 8081 }}
- --health-probe-bind-address={{ include "trainwright.address" .Values.healthProbe.port }}
{{- end }}
{{- if .Values.webhook.enabled }}
{{- if ne (int64 .Values.webhook.port) 9443 }}
- --webhook-server-port={{ int64 .Values.webhook.port }}
{{- end }}
- --webhook-service-name={{ include "trainwright.serviceName" . }}
- --webhook-secret-name={{ include "trainwright.secretName" . }}
- --webhook-configuration-name={{ include "trainwright.webhookConfigurationName" . }}
{{- else }}
- --webhook-server-port=0
{{- end }}
{{- if .Values.pytorch.initContainer.template }}
- --pytorch-init-container-template-file=/etc/config/initContainer.yaml
{{- end }}
{{- end }}

{{- define "trainwright.address" -}}
{{- ternary (printf ":%d" (int64 .)) "0" (gt (int64 .) 0) }}
{{- end }}

{{/* Non-empty if templates are rendered for a cluster that answers: `helm template` has none. The namespace of the release
     may not exist yet, with --create-namespace; that of the name default always does. */}}
{{- define "trainwright.connected" -}}
{{- if .Values.checks.enabled }}{{ with lookup "v1" "Namespace" "" "default" }}yes{{ end }}{{ end }}
{{- end }}

{{/* Non-empty if the object exists and belongs to another release, or to none. */}}
{{- define "trainwright.foreign" -}}
{{- with .object }}
{{- $owner := default dict .metadata.annotations }}
{{- $name := index $owner "meta.helm.sh/release-name" }}
{{- $namespace := index $owner "meta.helm.sh/release-namespace" }}
{{- if or (ne $.root.Release.Name (default "" $name)) (ne $.root.Release.Namespace (default "" $namespace)) }}yes{{ end }}
{{- end }}
{{- end }}
