#!/bin/sh
# Prints every change of a shared store, with nc and jq.
# usage: listener.sh GROUP_ID/NAME
set -eu

store=${1:?"usage: listener.sh GROUP_ID/NAME"}
socket=${GROUPSTORE_SOCKET:-${XDG_RUNTIME_DIR:?"set GROUPSTORE_SOCKET or XDG_RUNTIME_DIR"}/groupstore/agent.sock}

# nc stays connected after the end of its input. jq -n with inputs ends when the agent does; a refusal by the agent ends
# it at once, with status 5.
jq -nc --arg store "$store" '{id: 1, op: "subscribe", store: $store}' |
    nc -U "$socket" |
    jq -nr --unbuffered '
        inputs
        | if .ok == false then "refused: \(.error.message)\n" | halt_error(5)
          elif .ok then "listening to \(.path // "the store")"
          elif .type == "change" then "changed: read \(.store) again"
          elif .type == "reset" then "forget what you know of \(.store) and read it again (\(.reason))"
          elif .type == "relocated" then "moved to \(.to // "its group container")"
          elif .type == "relocating" then "moving; waiting for \([.waiting_for[]?.program] | join(", "))"
          else empty end'
