{{/* What a pod of the chart's own needs to call the server. */}}

{{/* Its variables. Takes (list $ TOKEN CERTIFICATE): whether it has a token, and the Secret of its certificate. */}}
{{- define "runledger.client.env" -}}
{{- $ := index . 0 -}}
- { name: RUNLEDGER_SERVER, value: {{ printf "%s:%s" (include "runledger.fullname" $) (toJson $.Values.service.port) | quote }} }
{{- if include "runledger.tls" $ }}
- { name: RUNLEDGER_CLIENT_TLS, value: "true" }
{{- if include "runledger.ownCA" $ }}
- { name: RUNLEDGER_CLIENT_TLS_CA, value: /etc/runledger/tls/ca.crt }
{{- else }}
- { name: RUNLEDGER_CLIENT_TLS_SERVER_NAME, value: {{ first $.Values.tls.extraDnsNames | quote }} }
{{- end }}
{{- if index . 2 }}
- { name: RUNLEDGER_CLIENT_TLS_CERT, value: /etc/runledger/client/tls.crt }
- { name: RUNLEDGER_CLIENT_TLS_KEY, value: /etc/runledger/client/tls.key }
{{- end }}
{{- end }}
{{- if index . 1 }}
- { name: RUNLEDGER_TOKEN_FILE, value: /var/run/secrets/runledger/token }
{{- if not (include "runledger.tls" $) }}
- { name: RUNLEDGER_ALLOW_PLAINTEXT_TOKEN, value: "true" }
{{- end }}
{{- end }}
{{- end }}

{{/* Its mounts. Takes the same. */}}
{{- define "runledger.client.mounts" -}}
{{- $mounts := list }}
{{- if include "runledger.ownCA" (index . 0) }}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/runledger/tls" "readOnly" true) }}
{{- end }}
{{- if index . 2 }}
{{- $mounts = append $mounts (dict "name" "client" "mountPath" "/etc/runledger/client" "readOnly" true) }}
{{- end }}
{{- if index . 1 }}
{{- $mounts = append $mounts (dict "name" "token" "mountPath" "/var/run/secrets/runledger" "readOnly" true) }}
{{- end }}
{{- toYaml $mounts }}
{{- end }}

{{/* Its volumes. Takes the same, and the Secret of its token, where it has one, with its key. */}}
{{- define "runledger.client.volumes" -}}
{{- $ := index . 0 }}
{{- $volumes := list }}
{{- if index . 2 }}
{{- $volumes = append $volumes (dict "name" "client" "secret" (dict "secretName" (index . 2))) }}
{{- end }}
{{- if include "runledger.ownCA" $ }}
{{- $item := list (dict "key" "ca.crt" "path" "ca.crt") }}
{{- $generated := dict "name" "tls" "configMap" (dict "name" (print (include "runledger.fullname" $) "-ca") "items" $item) }}
{{- $other := dict "name" "tls" "secret" (dict "secretName" (include "runledger.tlsSecret" $) "items" $item) }}
{{- $volumes = append $volumes (ternary $generated $other (eq $.Values.tls.source "generated")) }}
{{- end }}
{{- if index . 1 }}
{{- $own := dict "serviceAccountToken" (dict "path" "token" "audience" $.Values.access.audience "expirationSeconds" 600) }}
{{- $kept := dict "secret" (dict "name" (index . 3) "items" (list (dict "key" (index . 4) "path" "token"))) }}
{{- $volumes = append $volumes (dict "name" "token" "projected" (dict "sources" (list (ternary $kept $own (not (not (index . 3))))))) }}
{{- end }}
{{- toYaml $volumes }}
{{- end }}
