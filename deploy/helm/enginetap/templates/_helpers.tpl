{{- define "enginetap.selector" -}}
app.kubernetes.io/name: enginetap
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "enginetap.labels" -}}
{{ include "enginetap.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "enginetap.name" -}}
{{- if eq .Release.Name "enginetap" }}enginetap{{ else }}{{ .Release.Name }}-enginetap{{ end -}}
{{- end -}}
