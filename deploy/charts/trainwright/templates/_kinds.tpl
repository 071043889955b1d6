{{/* made by tools/chart/generate.py */}}
{{- define "trainwright.rules.admin" -}}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, xgboostjobs, paddlejobs, jaxjobs, mpijobs]
  verbs: ["*"]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/status, tfjobs/status, xgboostjobs/status, paddlejobs/status, jaxjobs/status, mpijobs/status]
  verbs: [get]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/scale, paddlejobs/scale, jaxjobs/scale]
  verbs: [get, patch, update]
{{- end }}
{{- define "trainwright.rules.edit" -}}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, xgboostjobs, paddlejobs, jaxjobs, mpijobs]
  verbs: [create, delete, deletecollection, get, list, patch, update, watch]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/status, tfjobs/status, xgboostjobs/status, paddlejobs/status, jaxjobs/status, mpijobs/status]
  verbs: [get]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/scale, paddlejobs/scale, jaxjobs/scale]
  verbs: [get, patch, update]
{{- end }}
{{- define "trainwright.rules.view" -}}
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, xgboostjobs, paddlejobs, jaxjobs, mpijobs]
  verbs: [get, list, watch]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/status, tfjobs/status, xgboostjobs/status, paddlejobs/status, jaxjobs/status, mpijobs/status]
  verbs: [get]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs/scale, paddlejobs/scale, jaxjobs/scale]
  verbs: [get]
{{- end }}
{{- define "trainwright.crds" -}}
{{- list "pytorchjobs.kubeflow.org" "tfjobs.kubeflow.org" "xgboostjobs.kubeflow.org" "paddlejobs.kubeflow.org" "jaxjobs.kubeflow.org" "mpijobs.kubeflow.org" | toJson }}
{{- end }}
{{- define "trainwright.webhooks" -}}
- name: validator.pytorchjob.training-operator.kubeflow.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{ .Values.webhook.failurePolicy }}
  timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
  {{- with .Values.scope.namespace }}
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
  {{- end }}
  clientConfig:
    service:
      name: {{ include "trainwright.serviceName" . }}
      namespace: {{ .Values.namespace.name }}
      path: /validate-kubeflow-org-v1-pytorchjob
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [pytorchjobs]
- name: validator.tfjob.training-operator.kubeflow.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{ .Values.webhook.failurePolicy }}
  timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
  {{- with .Values.scope.namespace }}
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
  {{- end }}
  clientConfig:
    service:
      name: {{ include "trainwright.serviceName" . }}
      namespace: {{ .Values.namespace.name }}
      path: /validate-kubeflow-org-v1-tfjob
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [tfjobs]
- name: validator.xgboostjob.training-operator.kubeflow.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{ .Values.webhook.failurePolicy }}
  timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
  {{- with .Values.scope.namespace }}
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
  {{- end }}
  clientConfig:
    service:
      name: {{ include "trainwright.serviceName" . }}
      namespace: {{ .Values.namespace.name }}
      path: /validate-kubeflow-org-v1-xgboostjob
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [xgboostjobs]
- name: validator.paddlejob.training-operator.kubeflow.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{ .Values.webhook.failurePolicy }}
  timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
  {{- with .Values.scope.namespace }}
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
  {{- end }}
  clientConfig:
    service:
      name: {{ include "trainwright.serviceName" . }}
      namespace: {{ .Values.namespace.name }}
      path: /validate-kubeflow-org-v1-paddlejob
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [paddlejobs]
- name: validator.jaxjob.training-operator.kubeflow.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{ .Values.webhook.failurePolicy }}
  timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
  {{- with .Values.scope.namespace }}
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
  {{- end }}
  clientConfig:
    service:
      name: {{ include "trainwright.serviceName" . }}
      namespace: {{ .Values.namespace.name }}
      path: /validate-kubeflow-org-v1-jaxjob
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jaxjobs]
- name: validator.mpijob.training-operator.kubeflow.org
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: {{ .Values.webhook.failurePolicy }}
  timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
  {{- with .Values.scope.namespace }}
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . }}
  {{- end }}
  clientConfig:
    service:
      name: {{ include "trainwright.serviceName" . }}
      namespace: {{ .Values.namespace.name }}
      path: /validate-kubeflow-org-v1-mpijob
  rules:
  - apiGroups: [kubeflow.org]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [mpijobs]
{{- end }}
