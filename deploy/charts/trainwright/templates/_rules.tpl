{{/* made by tools/chart/generate.py from operator/rbac.py */}}
{{/* Rules for running jobs: in the ClusterRole, or in a Role of scope.namespace. */}}
{{- define "trainwright.rules.jobs" -}}
- apiGroups: ["kubeflow.org"]  # watch jobs, annotate them, delete them after their TTL
  resources: [pytorchjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: ["kubeflow.org"]  # write the status of jobs
  resources: [pytorchjobs/status]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # own pods with blockOwnerDeletion
  resources: [pytorchjobs/finalizers]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # watch jobs, annotate them, delete them after their TTL
  resources: [tfjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: ["kubeflow.org"]  # write the status of jobs
  resources: [tfjobs/status]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # own pods with blockOwnerDeletion
  resources: [tfjobs/finalizers]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # watch jobs, annotate them, delete them after their TTL
  resources: [xgboostjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: ["kubeflow.org"]  # write the status of jobs
  resources: [xgboostjobs/status]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # own pods with blockOwnerDeletion
  resources: [xgboostjobs/finalizers]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # watch jobs, annotate them, delete them after their TTL
  resources: [paddlejobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: ["kubeflow.org"]  # write the status of jobs
  resources: [paddlejobs/status]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # own pods with blockOwnerDeletion
  resources: [paddlejobs/finalizers]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # watch jobs, annotate them, delete them after their TTL
  resources: [jaxjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: ["kubeflow.org"]  # write the status of jobs
  resources: [jaxjobs/status]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # own pods with blockOwnerDeletion
  resources: [jaxjobs/finalizers]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # watch jobs, annotate them, delete them after their TTL
  resources: [mpijobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: ["kubeflow.org"]  # write the status of jobs
  resources: [mpijobs/status]
  verbs: [update]
- apiGroups: ["kubeflow.org"]  # own pods with blockOwnerDeletion
  resources: [mpijobs/finalizers]
  verbs: [update]
- apiGroups: [""]  # create, adopt and delete the pods of a job
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]  # create and delete the Services of a job
  resources: [services]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]  # record events on jobs
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]  # manage the ConfigMap of a job
  resources: [configmaps]
  verbs: [list, watch, create, update]
- apiGroups: [""]  # manage the ServiceAccount of a job
  resources: [serviceaccounts]
  verbs: [list, watch, create]
- apiGroups: ["rbac.authorization.k8s.io"]  # manage the Role of a job
  resources: [roles]
  verbs: [list, watch, create, update]
- apiGroups: ["rbac.authorization.k8s.io"]  # manage the RoleBinding of a job
  resources: [rolebindings]
  verbs: [list, watch, create, update]
- apiGroups: [""]  # grant it in the Role of a job
  resources: [pods/exec]
  verbs: [create]
- apiGroups: [""]  # adopt and release Services
  resources: [services]
  verbs: [patch]
- apiGroups: ["autoscaling"]  # manage the HorizontalPodAutoscaler of a job
  resources: [horizontalpodautoscalers]
  verbs: [list, watch, create, patch, delete]
{{- if .Values.gangScheduler.name }}
- apiGroups: ["scheduling.volcano.sh"]  # manage the PodGroup of a job
  resources: [podgroups]
  verbs: [list, watch, create, patch, delete]
- apiGroups: ["scheduling.x-k8s.io"]  # manage the PodGroup of a job
  resources: [podgroups]
  verbs: [list, watch, create, patch, delete]
{{- end }}
{{- if .Values.jobs.readFailedPodLogs }}
- apiGroups: [""]  # quote the cause of a failure
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- end }}
{{/* Rules for what belongs to no namespace. */}}
{{- define "trainwright.rules.cluster" -}}
{{- if .Values.rbac.clusterResources }}
- apiGroups: [""]  # detect lost nodes
  resources: [nodes]
  verbs: [list, watch]
{{- end }}
{{- if and .Values.rbac.clusterResources .Values.gangScheduler.name }}
- apiGroups: ["scheduling.k8s.io"]  # count the replicas of the highest priority first
  resources: [priorityclasses]
  verbs: [list, watch]
{{- end }}
{{- if .Values.webhook.enabled }}
- apiGroups: ["admissionregistration.k8s.io"]  # write the certificate authority of the webhooks
  resources: [validatingwebhookconfigurations]
  verbs: [list, watch, update]
{{- end }}
{{- if .Values.operator.installCrds }}
- apiGroups: ["apiextensions.k8s.io"]  # install the CRDs
  resources: [customresourcedefinitions]
  verbs: [get, create, update]
{{- end }}
{{- end }}
{{/* Rules in the operator's namespace. */}}
{{- define "trainwright.rules.own" -}}
{{- if .Values.webhook.enabled }}
- apiGroups: [""]  # store the certificates of the webhooks
  resources: [secrets]
  verbs: [list, watch, update]
{{- end }}
{{- if .Values.webhook.enabled }}
- apiGroups: [""]  # create the Secret of the webhooks
  resources: [secrets]
  verbs: [create]
{{- end }}
{{- end }}
{{/* Rules in the namespace of the Lease. */}}
{{- define "trainwright.rules.lease" -}}
- apiGroups: ["coordination.k8s.io"]  # hold the Lease of the leader
  resources: [leases]
  verbs: [get, create, update, watch]
{{- end }}
