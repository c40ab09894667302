package config

import (
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
	"github.com/millrace/millrace/internal/testkit/testcert"
)

// kinds are small files, each of another kind: what a key needs is in some of them.
var kinds = map[string]string{
	"http":  "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\n" + toPool + "pools: [{name: p, backends: [{address: 127.0.0.1:1}]}]\n",
	"https": "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, versions: ['1.1', '2', '3'], tls: {certificates: [{cert: c}, {cert: b}]}}]\n" + toPool + "pools: [{name: p, backends: [{address: 127.0.0.1:1}]}]\n",
	"http stack": "devices: [{name: eth0, addresses: [198.18.0.7/24, 198.18.0.1/24]}]\nstack: devices\nlisteners: [{name: l, address: 198.18.0.1:80, protocol: HTTP}]\n" + toPool +
		"pools: [{name: p, backends: [{address: 198.18.0.2:1}]}]\n",
	"answers":     "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\nroutes: [{name: r, rules: [{matches: [{}], filters: [{type: FixedResponse}]}]}]\n",
	"h3 pool":     "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, versions: ['1.1', '2', '3'], tls: {certificates: [{cert: c}, {cert: b}]}}]\n" + toPool + "pools: [{name: p, protocol: H3, tls: {insecure: true}, backends: [{address: 127.0.0.1:1}]}]\n",
	"files":       "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\nroutes: [{name: r, rules: [{matches: [{}], static: {root: /}}]}]\n",
	"acme":        "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, tls: {acme: {names: a.example, dir: d, agree_to_terms: true}}}]\n",
	"named":       "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\n" + toPool + "pools: [{name: p, backends: [{address: 'app.example:1'}]}]\n",
	"scripts":     checked("FASTCGI", "fastcgi: {root: /srv}, drain: 9s"),
	"tls":         "listeners: [{name: l, address: 127.0.0.1:443, protocol: TLS}]\ntls_routes: [{name: r, backend_refs: [{name: p}]}]\npools: [{name: p, protocol: TCP, backends: [{address: 127.0.0.1:1}]}]\n",
	"tcp":         "listeners: [{name: l, address: 127.0.0.1:25, protocol: TCP}]\ntcp_routes: [{name: r, backend_refs: [{name: p}]}]\npools: [{name: p, protocol: TCP, backends: [{address: 127.0.0.1:1}]}]\n",
	"nat":         oneService,
	"udp":         "devices: [{name: eth0}]\nservices: [{name: s, protocol: udp, source: client, address: 198.18.1.1:53, backends: [{address: 198.18.2.2:53}]}]\n",
	"ipip":        "devices: [{name: eth0}]\ntunnel: {source: 198.18.3.1}\nservices: [{name: s, mode: ipip, address: 198.18.1.1:80, backends: [{address: 198.18.2.2}]}]\n",
	"gue":         "devices: [{name: eth0}]\ntunnel: {source: 198.18.3.1}\nservices: [{name: s, mode: gue, address: 198.18.1.1:80, backends: [{address: 198.18.2.2}]}]\n",
	"https check": checked("HTTPS", "tls: {insecure: true}, health: {type: https}"), "http check": checked("HTTP", "health: {type: http}"),
	"grpcs check": checked("H2", "tls: {insecure: true}, health: {type: grpcs}"), "grpc check": checked("H2C", "health: {type: grpc}"),
	"udp check": checked("HTTP", "health: {type: udp, port: 9, udp: {send: a}}"), "command": checked("HTTP", "health: {type: command, command: [/bin/true, x]}"),
	"verified":         checked("HTTPS", "tls: {server_name: b.example}"),
	"hash":             checked("HTTP", "balance: consistent_hash, hash: {by: header, name: y}"),
	"redirect":         "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\nroutes: [{name: r, rules: [{filters: [{type: RequestRedirect, port: 81}]}]}]\n",
	"rewrite":          strings.Replace(checked("HTTP", "drain: 9s"), "type: RequestHeaderModifier, remove: [x]", "type: URLRewrite, hostname: b.example", 1),
	"regex":            strings.Replace(checked("HTTP", "drain: 9s"), "type: RequestHeaderModifier, remove: [x]", "type: URLRewrite, path: {type: ReplaceRegexMatch, pattern: /a, value: /b}", 1),
	"shielded":         strings.Replace(checked("HTTP", "drain: 9s"), "name: l,", "name: l, waf: {rules: a, mode: prevent},", 1),
	"tunnels":          "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\nroutes: [{name: r, rules: [{matches: [{}], connect_udp: {targets: '192.0.2.0/24:53'}}]}]\n",
	"watched":          strings.Replace(strings.Replace(checked("HTTP", "drain: 9s"), "name: l,", "name: l, waf: {rules: a},", 1), "name: r,", "name: r, waf: {rules: a},", 1),
	"shielded route":   strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, waf: {rules: a, mode: prevent},", 1),
	"cors":             strings.Replace(checked("HTTP", "drain: 9s"), "type: RequestHeaderModifier, remove: [x]", "type: CORS, allow_origins: ['https://a.example']", 1),
	"mirror":           strings.Replace(checked("HTTP", "drain: 9s"), "type: RequestHeaderModifier, remove: [x]", "type: RequestMirror, pool: p", 1),
	"affinity":         checked("HTTP", "affinity: {by: header, name: y}"),
	"limited":          "rate_limits: [{name: rl, requests: 5}]\n" + strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, rate_limits: [rl],", 1),
	"cached":           "caches: [{name: k, memory: 2097152}]\n" + strings.Replace(checked("HTTP", "drain: 9s"), "matches: [{}],", "matches: [{}], cache: {name: k},", 1),
	"limited by":       "rate_limits: [{name: rl, key: {by: header, name: y}, requests: 5}]\n" + strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, rate_limits: [rl],", 1),
	"limited listener": "rate_limits: [{name: rl, requests: 5}, {name: z, requests: 5}]\n" + strings.Replace(checked("HTTP", "drain: 9s"), "name: l,", "name: l, rate_limits: [z, rl],", 1),
	"limited value":    "rate_limits: [{name: rl, key: {by: value, value: '${host}'}, requests: 5}, {name: z, requests: 5}]\n" + strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, rate_limits: [rl, z],", 1),
	"sourced":          strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, sources: {deny: 192.0.2.7},", 1),
	"listener sources": strings.Replace(checked("HTTP", "drain: 9s"), "name: l,", "name: l, sources: {deny: 192.0.2.7},", 1),
	"pages":            strings.Replace(strings.Replace(checked("HTTP", "drain: 9s"), "name: l,", "name: l, error_pages: [{status: 404, file: a.txt}],", 1), "name: r,", "name: r, maintenance: {}, error_pages: [{status: 404, file: a.txt}],", 1),
	"strict transport": strings.Replace(strings.Replace(checked("HTTP", "drain: 9s"), "protocol: HTTP}", "protocol: HTTPS, tls: {certificates: [{cert: c}, {cert: b}]}, hsts: {max_age: 9000h, include_subdomains: true}}", 1), "b.example", "c", 1),
	"location":         "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\nroutes: [{name: r, rules: [{filters: [{type: RequestRedirect, location: '/b'}]}]}]\n",
	"basic":            strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, auth: {basic: {file: u}},", 1),
	"jwt file":         strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, auth: {jwt: {issuer: i, audiences: a, jwks_file: u}},", 1),
	"jwt url":          strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, auth: {jwt: {issuer: i, audiences: a, jwks_url: 'https://a.example'}},", 1),
	"forward auth":     strings.Replace(checked("HTTP", "drain: 9s"), "name: r,", "name: r, auth: {forward: {pool: p}},", 1),
	"mutual":           "listeners: [{name: l, address: 127.0.0.1:443, protocol: HTTPS, tls: {certificates: [{cert: c}, {cert: b}], client_auth: {ca_file: a, forward: client-cert}}}]\n",
	"http2":            "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP, versions: ['2', '1.1']}]\n" + toPool + "pools: [{name: p, backends: [{address: 127.0.0.1:1}]}]\n",
	"proxied":          "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP, proxy_protocol: {from: 192.0.2.1}}]\n" + toPool + "pools: [{name: p, backends: [{address: 127.0.0.1:1}]}]\n",
	"afpacket":         strings.Replace(oneService, "eth0", "eth0, driver: afpacket", 1),
	"announced": "bgp: {as: 64513, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 64514}, {address: 192.0.2.3, as: 64513, next_hop: '2001:db8::9'}]}\n" +
		strings.Replace(oneService, "backends:", "announce: {communities: no-export}, backends:", 1),
	"announced listener": "bgp: {as: 64513, router_id: 192.0.2.1, peers: [{address: 192.0.2.2, as: 64514}, {address: 192.0.2.3, as: 64513}]}\n" +
		"listeners: [{name: l, address: 198.18.1.1:80, protocol: HTTP, announce: {communities: no-export}}]\n" + toPool + "pools: [{name: p, backends: [{address: 192.0.2.7:1}]}]\n",
	"kernel":          "kernel_flows: on\n" + oneService,
	"limits":          "limits: {packets: 9}\nsources: {deny: 192.0.2.8}\ndefence: {limits: {excess: 5}}\nsync: {listen: '198.18.9.9:1', peer: '198.18.9.8:1', key_file: a, index: 0, role: {preempt: true}}\n" + oneService,
	"detect":          "inspection: {policies: [{name: a, rules: x}]}\n" + oneService,
	"prevent":         "inspection: {policies: [{name: a, mode: prevent, rules: x}], packets: {file: q}, alerts: {file: q}}\ndefence: {inspection: {}}\n" + oneService,
	"inspected":       "inspection: {policies: [{name: a, mode: prevent, listeners: k, rules: x}], alerts: {file: q}}\n" + strings.Replace(checked("HTTP", "drain: 9s"), "listeners: [{", "listeners: [{name: k, address: 127.0.0.1:81, protocol: HTTP}, {", 1),
	"access":          "inspection: {policies: [{name: a, mode: prevent, access: x}]}\n" + oneService,
	"dashboard":       "admin: {listen: '127.0.0.1:8'}\n" + checked("HTTP", "drain: 9s"),
	"logged":          "access_log: {file: y}\n" + checked("HTTP", "drain: 9s"),
	"logged text":     "access_log: {file: y, format: text, template: '${status}', sample: {one_in: 9}}\n" + checked("HTTP", "drain: 9s"),
	"logged combined": "access_log: {file: y, format: combined, rotate: {size: 4096}}\n" + checked("HTTP", "drain: 9s"),
	"syslog":          "access_log: {syslog: {address: 'unix:/dev/log'}}\n" + checked("HTTP", "drain: 9s"),
	"capture":         "inspection: {policies: [{name: a, capture: udp}], packets: {file: q}}\n" + oneService,
	"quic":            "devices: [{name: eth0}]\nservices: [{name: s, protocol: udp, source: client, quic: {server_id_length: 2, nonce_length: 5}, address: '[2001:db8::1]:53', backends: [{server_id: '0102', address: '[2001:db8::2]:53'}]}]\n",
	"checked http":    strings.Replace(oneService, "backends:", "health: {type: https}, backends:", 1), "checked grpc": strings.Replace(oneService, "backends:", "health: {type: grpcs}, backends:", 1),
	"checked udp": strings.Replace(oneService, "backends:", "health: {type: udp, port: 9, udp: {send: a}}, backends:", 1), "checked hex": strings.Replace(oneService, "backends:", "health: {type: udp, port: 9, udp: {send_hex: '05'}}, backends:", 1),
	"checked command": strings.Replace(oneService, "backends:", "health: {type: command, command: [/bin/true, x]}, backends:", 1),
	"hex check":       checked("HTTP", "health: {type: udp, port: 9, udp: {send_hex: '05'}}"),
	"bounded":         strings.Replace(oneService, "backends: [{", "sources: {deny: 192.0.2.7}, limits: {packets: 5}, persistence: {prefix4: 8}, health: {type: tcp}, backends: [{max_connections: 5, ", 1),
	"l2":              "devices: [{name: eth0}]\nservices: [{name: s, mode: l2, address: 198.18.1.1:80, backends: [{address: 198.18.2.2}]}]\n",
}

// compared has configurations compared by what is exported.
var compared = cmp.Options{cmpopts.IgnoreUnexported(Config{}), sameAddrs, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })}

const oneService = "devices: [{name: eth0}]\nsnat: 198.18.2.1\nservices: [{name: s, address: 198.18.1.1:80, backends: [{address: 198.18.2.2:80}]}]\n"

// checked is a file with a pool that has more keys.
func checked(protocol, keys string) string {
	return "listeners: [{name: l, address: 127.0.0.1:80, protocol: HTTP}]\n" + toPool + "pools: [{name: p, protocol: " + protocol + ", " + keys + ", backends: [{address: 127.0.0.1:1}]}]\n"
}

const toPool = "routes: [{name: r, rules: [{matches: [{}], filters: [{type: RequestHeaderModifier, remove: [x]}], backend_refs: [{name: p}]}]}]\n"

// samples has a value of every key that is not its default.
const samples = `
devices: [{name: eth1, driver: afpacket, mode: native, queues: 2, ring: 512, addresses: [198.18.0.1/24]}]
snat: [198.18.2.9]
snat_ports: 2000-2999
checksum: drop
engine: auto
hash_key_file: hash.key
cpus: none
extra_processor: true
kernel_flows: auto
spin: 20us
tunnel: {source: [198.18.9.0/24], gue_port: 6081, too_big: fragment}
sources: {deny: [192.0.2.0/24], allow: [192.0.2.1], default: deny}
limits: {packets: 10, connections: 20, burst: 2s, clients: 2048}
defence: {devices: [eth1], drop: [192.0.2.0/24], accept: [192.0.2.1], rates: [{sources: [192.0.2.0/25], packets: 10, burst: 2}], syn_rate: 5, time: 2m, max_verdicts: 9,
  limits: {excess: 9, action: drop, time: 2m}, clients: {refused: 9, window: 9s, time: 2m}, inspection: {time: 2m}}
table: {size: 4096, tcp: {established: 1h, syn: 5s, fin: 6s, syn_recv: 8s, half_closed: 9s, reset: 11s}, udp: 7s, half_open: 300, fragments: 64, kernel_flows: 5000}
sync: {listen: "198.18.9.1:1", peer: "198.18.9.2:1", key_file: k, key: "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f", index: 1,
  role: {priority: 7, lease: 3s, preempt: true, preempt_delay: 4s, paths: [{listen: "198.18.8.1:1", peer: "198.18.8.2:1"}], watch: [198.18.8.254]}}
admin: {socket: /tmp/gw.sock, listen: "127.0.0.1:9", hosts: gw.example, token_file: t}
metrics: {listen: "127.0.0.1:0"}
inspection:
  policies: [{name: all, mode: prevent, services: [s], listeners: [l], routes: [r], hold: 5, devices: [eth0], rules: [a.rules], access: [a.access], capture: tcp, lenient: true, overlaps: pass, urgent: drop}]
  variables: HOME_NET=any
  variables_file: s.yaml
  classification: c.config
  flows: 100
  memory: 2_097_152
  overload: pass
  alerts: {file: "-", buffer: 131072, payload: 9}
  packets: {file: p.pcapng, size: 262144}
services:
  - {name: t, protocol: udp, address: 198.18.1.1:81, mode: l2, source: client, removed: drop, unhealthy: drop, unknown: reset, balance: least_connections,
     persistence: {by: client, prefix4: 24, prefix6: 48}, when_full: drop, hash_size: 251, slow_start: 3s, drain: 4s, unavailable: reject, mss: auto,
     quic: {rotation: 2, server_id_length: 2, nonce_length: 6, key: "000102030405060708090a0b0c0d0e0f"},
     sources: {deny: [192.0.2.9], allow: [192.0.2.8], default: deny}, limits: {packets: 1, connections: 2, burst: 50ms},
     announce: {med: 7, local_preference: 7, prepend: 1, communities: no-advertise},
     backends: [{name: b, address: 198.18.2.3:80, weight: 3, state: draining, server_id: "0a0b", max_connections: 9}],
     health: {type: https, interval: 300ms, timeout: 200ms, rise: 1, fall: 2, port: 99, device: eth0, command: [/bin/true],
       http: {method: POST, path: "/a", host: web, status: 200, body: fine, server_name: web.example, insecure: true, ca_file: AUTHORITY},
       grpc: {service: s, host: web, server_name: web.example, insecure: true, ca_file: AUTHORITY},
       tcp: [{send: x, send_hex: "01", expect: y, expect_hex: "02"}],
       udp: {send: x, send_hex: "01", expect: y, expect_hex: "02", silence: success}},
     passive: {failures: 3, window: 4s, down: 5s, max_down: 6m, max_ejected: 7}}
stack: devices
loops: 3
resolver: {servers: [192.0.2.53], timeout: 3s, attempts: 3, family: ipv4, min_ttl: 2s, max_ttl: 9m}
network: {routes: [{to: 192.0.2.0/24, via: 198.18.0.9, device: eth0}]}
access_log: {file: "-", buffer: 131072, format: combined, fields: [status, ja4, header.x-tenant], template: "${path}", rotate: {size: 8192, keep: 3}, sample: {one_in: 7, slow: 1s},
  syslog: {address: "udp:192.0.2.1:514", facility: user, app_name: edge}}
bgp: {as: 64515, router_id: 192.0.2.7, med: 5, local_preference: 5, prepend: 2, communities: ["64512:1", "64512:1:2"], graceful_restart: 5s, drain: 5s,
  peers: [{address: 192.0.2.7, as: 64513, port: 99, local_address: 192.0.2.8, password_file: p, hold_time: 30s, connect_retry: 9s, hops: 2, ttl_security: true, families: ipv4, next_hop: 192.0.2.6, max_prefixes: 7}]}
tracing: {endpoint: "http://192.0.2.1:4318", one_in: 5, from: 192.0.2.0/24, service_name: edge}
rate_limits: [{name: rl, key: {by: path, name: x, value: "${path}", prefix4: 24, prefix6: 48}, requests: 7, interval: 1m, burst: 9, keys: 99, announce: always, dry_run: true}]
caches: [{name: kk, memory: 4194304, max_object: 99, disk: {dir: d, bytes: 33554432, max_object: 77, objects: 88}}]
listeners:
  - {name: m, address: 127.0.0.1:444, protocol: HTTPS, compression: {codings: gzip, types: text/html, min_bytes: 9}, versions: ["2"], alt_svc: 1h, request_id: x-request-id, early_data: true, proxy_protocol: {from: 192.0.2.0/28, http3: true}, colliding_fields: reject,
     forwarded: {trusted: 192.0.2.0/28, style: forwarded, via: true},
     tls: {acme: {names: b.example, dir: e, agree_to_terms: true, directory: 'https://ca.example/', ca_file: f, contact: 'mailto:a@b.example', challenges: tls-alpn-01, external_account: {key_id: k, key_file: l}, on_demand: {names: c.example, suffixes: d.example, ask: 'https://ask.example/', ca_file: f, wait: 1s, orders_per_hour: 3, certificates: 4}}, certificates: [{cert: d, key: e, default: true, ocsp_file: o}], min_version: "1.3", max_version: "1.2", ciphers: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, ocsp: fetch, client_auth: {ca_file: f, crl_file: g, optional: true, forward: client-cert, forward_chain: true}, misdirected: "off", ticket_key_file: h},
     timeouts: {handshake: 1s, request_header: 1s, request_body: 1s, write: 1s, idle: 1s, stream: 1s, drain: 1s},
     limits: {connections: 1, connection_requests: 1, streams: 1, target_bytes: 100, header_bytes: 1024, header_fields: 9, body_bytes: 1}, waf: {mode: prevent, rules: b, exclude: 7-9, body_bytes: 2048, excess: pass, timeout: 2s, responses: true}, rate_limits: [rl, z], hsts: {max_age: 9000h, include_subdomains: true, preload: true}, error_pages: [{status: 503, file: p.html, content_type: text/plain}], sources: {deny: [192.0.2.9], allow: [192.0.2.8], default: deny},
     announce: {med: 7, local_preference: 7, prepend: 1, communities: no-advertise}}
routes:
  - name: q
    listeners: l
    hostnames: a.example
    forward_path: raw
    expect_continue: forward
    upgrades: [tcp]
    rate_limits: [z, rl]
    sources: {deny: [192.0.2.9], allow: [192.0.2.8], default: deny}
    concurrency: {requests: 3, per_user: 2, pending: 4, wait: 1m}
    maintenance: {retry_after: 1m, allow: 192.0.2.9}
    limits: {body_bytes: 5}
    waf: {mode: prevent, rules: b, exclude: 7-9, body_bytes: 2048, excess: pass, timeout: 2s, responses: true}
    inspection: {mode: prevent, exclude: [7]}
    error_pages: [{status: 503, file: p.html, content_type: text/plain}]
    auth:
      basic: {file: v, realm: r}
      jwt: {issuer: j, audiences: [b], jwks_file: v, jwks_url: "https://b.example", ca_file: f, refresh: 1m, leeway: 1s, cookie: c, realm: r, user_claim: u, claims: [{name: x-a, claim: b}]}
      forward: {pool: q, path: /v, timeout: 1s, request_headers: x-a, response_headers: x-b}
    rules:
      - name: u
        matches: [{path: {type: Exact, value: /x}, method: PUT, headers: [{type: RegularExpression, name: x, value: y}], query_params: [{type: RegularExpression, name: x, value: y}],
          sni: a.example, ja4: t13d1516h2_8daaf6152771_e5627efa2ab1, alpn: h2, clients: 192.0.2.0/28}]
        filters: [{type: URLRewrite, set: [{name: x, value: y}], add: [{name: x, value: y}], remove: [y], scheme: https, hostname: a.example, path: {type: ReplaceFullPath, value: /, pattern: /x}, location: "https://${host}/", port: 9, status_code: 301, body: x,
          allow_origins: ["https://b.example"], allow_credentials: true, allow_methods: [PUT], allow_headers: [x-a], expose_headers: [x-b], max_age: 9s, pool: q, percent: 5, content_bytes: 5}]
        backend_refs: [{name: p, weight: 2}]
        static: {root: /tmp, index: i.html, try_files: '/x', listing: true, precompressed: gzip, hidden: true, cache_control: no-store}
        cache: {name: kk, default_ttl: 1s, heuristic_percent: 5, stale_while_revalidate: 1s, stale_if_error: 1s, client_control: ignore, key_headers: x-a, key_cookies: c, collapse_wait: 1s}
        connect_udp: {targets: '192.0.2.0/25:9', tunnels: 9, idle: 9s}
        webtransport: {sessions: 9, streams: 9, buffer_bytes: 65536, idle: 9s}
        timeouts: {request: 1s, backend_request: 1s}
        retry: {attempts: 2, codes: [503]}
        early_hints: "</x.css>; rel=preload"
tls_routes: [{name: q, listeners: l, hostnames: a.example, ja4: t13d1516h2_8daaf6152771_e5627efa2ab1, alpn: h2, clients: 192.0.2.0/28, backend_refs: [{name: p, weight: 2}]}]
tcp_routes: [{name: q, listeners: l, backend_refs: [{name: p, weight: 2}]}]
pools:
  - {name: q, protocol: H2C, balance: random, hash: {by: header, name: x}, sticky: {cookie: c, max_age: 1h}, affinity: {by: cookie, name: x, ttl: 1m, entries: 9},
     tls: {server_name: a.example, ca_file: f, certificate: {cert: c, key: k}, insecure: true}, proxy_protocol: v2, field_names: preserve, early_data: true,
     fastcgi: {root: /srv/w, local_root: l, check_scripts: false, index: i.php, fallback: /f.php, extensions: .phar, keep_connections: true, content_buffer: 5, params: [{name: A, value: b}]},
     backends: [{name: b, address: "127.0.0.1:2", weight: 2, state: draining, max_connections: 1, max_requests: 1}],
     passive: {errors: 1, gateway_errors: 1, success_rate: {interval: 1s, min_backends: 2, min_requests: 2, factor_percent: 2}, down: 1s, max_down: 6m, max_ejected: 1},
     health: {type: https, interval: 300ms, timeout: 200ms, rise: 1, fall: 2, port: 99, device: eth0, command: [/bin/true],
       http: {method: POST, path: "/a", host: web, status: 200, body: fine, server_name: web.example, insecure: true, ca_file: AUTHORITY},
       grpc: {service: s, host: web, server_name: web.example, insecure: true, ca_file: AUTHORITY},
       tcp: [{send: x, send_hex: "01", expect: y, expect_hex: "02"}],
       udp: {send: x, send_hex: "01", expect: y, expect_hex: "02", silence: success}},
     retry_content: 1, panic_threshold: 1, slow_start: 1s, drain: 1s, idle_connections: 1, connection_requests: 1,
     limits: {requests: 1, queued: 1, connections: 1, pending: 1, header_bytes: 1024, header_fields: 9}, timeouts: {connect: 1s, wait: 1s, response: 1s, body: 1s, idle: 1s},
     retry_budget: {percent: 1, interval: 1s, min_rate: 1}}
`

// set puts the sample of a key into a file, with the keys that its mapping requires. It reports false where the list that the key is
// of is not in the file, and so the key cannot be.
func set(to map[string]any, from map[string]any, s *strictyaml.Schema, path string) bool {
	key, rest, more := strings.Cut(path, ".")
	key, list := strings.CutSuffix(key, "[]")
	of := property(s, key)
	if list {
		of = items(of)
		sample, ok := from[key].([]any)
		there, ok2 := to[key].([]any)
		switch {
		case !ok:
			panic("no sample of " + key)
		case !ok2 && len(s.Properties) > 40: // of the root: other kinds have it
			return false
		case !ok2:
			there = []any{required(sample[0].(map[string]any), of)}
			to[key] = there
		}
		return set(there[0].(map[string]any), sample[0].(map[string]any), of, rest)
	}
	sample, ok := from[key]
	if !ok {
		panic("no sample of " + key)
	}
	if !more {
		to[key] = sample
		if m, ok := sample.(map[string]any); ok {
			to[key] = required(m, of)
		}
		return true
	}
	if to[key] == nil {
		to[key] = required(sample.(map[string]any), of)
	}
	return set(to[key].(map[string]any), sample.(map[string]any), object(of), rest)
}

// required returns the keys that a mapping cannot be without.
func required(sample map[string]any, s *strictyaml.Schema) map[string]any {
	out := map[string]any{}
	keys := slices.Clone(object(s).Required)
	for _, p := range object(s).Properties { // one of several is required
		switch p.Name {
		case "on_demand":
			keys = append(keys, "names")
		case "suffixes":
			keys = append(keys, "names", "ask")
		case "per_user", "queued": // the one needs users, the other has no effect without it
			keys = append(keys, "requests")
		}
	}
	for _, key := range keys {
		switch v := sample[key].(type) {
		case map[string]any:
			out[key] = required(v, property(s, key))
		case []any:
			if m, ok := v[0].(map[string]any); ok {
				out[key] = []any{required(m, items(property(s, key)))}
				continue
			}
			out[key] = v
		default:
			out[key] = v
		}
	}
	return out
}

// object, items and property find the part of a schema, among its alternatives.
func object(s *strictyaml.Schema) *strictyaml.Schema {
	if i := slices.IndexFunc(s.AnyOf, func(a *strictyaml.Schema) bool { return a.Properties != nil }); i >= 0 && s.Properties == nil {
		return s.AnyOf[i]
	}
	return s
}

func items(s *strictyaml.Schema) *strictyaml.Schema {
	if i := slices.IndexFunc(s.AnyOf, func(a *strictyaml.Schema) bool { return a.Items != nil }); i >= 0 && s.Items == nil {
		return s.AnyOf[i].Items
	}
	return s.Items
}

func property(s *strictyaml.Schema, key string) *strictyaml.Schema {
	o := object(s)
	i := slices.IndexFunc(o.Properties, func(p strictyaml.Property) bool { return p.Name == key })
	if i < 0 {
		panic("no key " + key)
	}
	return o.Properties[i].Schema
}

// distinguishing keys make the kinds: their values are in them.
var distinguishing = map[string]bool{
	"services[].mode": true, "sync.role.preempt": true, "services[].quic.server_id_length": true, "services[].persistence.by": true, "stack": true, "listeners[].protocol": true,
	"routes[].rules[].filters[].type": true, "routes[].rules[].filters[].pool": true, "routes[].rules[].backend_refs[].name": true, "tls_routes[].backend_refs[].name": true,
	"tcp_routes[].backend_refs[].name": true, "pools[].hash.by": true, "pools[].affinity.by": true, "routes[].auth.forward.pool": true, "rate_limits[].name": true, "caches[].name": true, "routes[].rules[].cache.name": true,
}

// leaf reports whether no keys are below.
func leaf(s *strictyaml.Schema) bool { return len(s.Keys()) == 0 }

// parsed reads YAML that a test wrote.
func parsed(src string) (m map[string]any) {
	if err := yaml.Unmarshal([]byte(src), &m); err != nil {
		panic(err)
	}
	return m
}

// TestEveryKeyHasAnEffectOrIsRefused sets every key of the schema in a file of each kind. The golden file lists what is accepted: it
// says that the key has an effect there, and is to be read as such before it is written with -update. Whatever is refused names why.
func TestEveryKeyHasAnEffectOrIsRefused(t *testing.T) {
	var got strings.Builder
	cert, _ := testcert.SelfSigned("site.example")
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	schema, all := Schema(), parsed(strings.ReplaceAll(samples, "AUTHORITY", file))
	before := map[string]*Config{}
	for kind, src := range kinds {
		c, err := Parse("f", []byte(src))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		before[kind] = c
	}
	for _, k := range schema.Keys() {
		var accepted []string
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			file := parsed(kinds[kind])
			if !set(file, all, schema, k.Path) || reflect.DeepEqual(file, parsed(kinds[kind])) {
				continue
			}
			src, err := yaml.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse("f", src)
			if wrong := new(Error); err != nil && !errors.As(err, &wrong) {
				t.Fatalf("%s of %s: %v", k.Path, kind, err)
			}
			if err == nil && k.Path != "services[].persistence.by" { // which has one value
				accepted = append(accepted, kind)
				if cmp.Equal(before[kind], c, compared) && k.Schema.Type != "object" {
					t.Errorf("%s of %s is accepted and leaves the configuration as it is", k.Path, kind)
				}
			}
		}
		if len(accepted) == 0 && leaf(k.Schema) && !distinguishing[k.Path] {
			t.Errorf("%s is accepted in no kind of file", k.Path)
		}
		fmt.Fprintf(&got, "%s: %s\n", k.Path, strings.Join(accepted, ", "))
	}
	const golden = "testdata/effects.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("other keys are accepted: %s", diff)
	}
}

// TestProtectionThatIsNotAppliedIsRefused has files that a new operator writes, and what the error names.
func TestProtectionThatIsNotAppliedIsRefused(t *testing.T) {
	listener, service := kinds["http"], oneService
	for _, c := range []struct{ file, want string }{
		{"sources: {default: deny}\n" + listener, "sources has no effect: it is for services, and there are none; listeners do not apply it"},
		{"sources: {deny: [192.0.2.0/24]}\n" + listener, "sources has no effect"},
		{"limits: {packets: 5}\n" + listener, "limits has no effect"},
		{"inspection: {policies: [{name: a, mode: prevent, rules: x}]}\n" + listener, "inspection has no effect"},
		{"inspection: {policies: [{name: a, rules: x, listeners: l, access: y}]}\n" + listener, "access has no effect: it is about packets"},
		{"inspection: {policies: [{name: a, rules: x, listeners: l, urgent: drop}]}\n" + listener, "urgent has no effect: it is about packets"},
		{"inspection: {policies: [{name: a, mode: prevent, rules: x, hold: 5}]}\n" + service, "hold has no effect: it is for listeners"},
		{"inspection: {policies: [{name: a, rules: x, hold: 5, listeners: l}]}\n" + listener, "hold has no effect: it is for listeners"},
		{"inspection: {policies: [{name: a, rules: x, listeners: l}], packets: {file: q}}\n" + listener, "inspection.packets has no effect"},
		{"inspection: {policies: [{name: a, access: x, listeners: l}]}\n" + listener, "listeners has no effect: the policy has no rules on requests"},
		{"inspection: {policies: [{name: a, rules: x, listeners: other}]}\n" + listener, "which is not there"},
		{"inspection: {policies: [{name: a, rules: x, listeners: l}, {name: b, rules: x, listeners: l}]}\n" + listener, "has the policy a already"},
		{"inspection: {policies: [{name: a, rules: x, listeners: l}]}\n" + kinds["tcp"], "passes bytes through"},
		{"snat: 198.18.2.1\n" + listener, "snat has no effect"},
		{"kernel_flows: on\n" + listener, "kernel_flows has no effect"},
		{"checksum: drop\n" + listener, "checksum has no effect"},
		{"hash_key_file: k\n" + listener, "hash_key_file has no effect: nothing selects by a hash"},
		{"sources: {allow: [192.0.2.0/24]}\n" + service, "sources.allow has no effect: every client is allowed"},
		{strings.Replace(service, "backends:", "sources: {allow: [192.0.2.0/24]}, backends:", 1), "sources.allow has no effect"},
		{"limits: {burst: 5s}\n" + service, "limits.burst has no effect: there is no limit"},
		{"inspection: {policies: [{name: a, mode: prevent, capture: tcp}], packets: {file: x}}\n" + service, "mode has no effect: the policy has no rules"},
		{"inspection: {policies: [{name: a, rules: x}, {name: b, mode: prevent, rules: y, services: s}]}\n" + service, `policy "b" has no effect: policies before it take all`},
		{"inspection: {policies: [{name: a, rules: x}]}\ndefence: {inspection: {}}\n" + service, "no policy drops any"},
		{strings.Replace(service, "backends:", "unhealthy: drop, backends:", 1), "unhealthy has no effect"},
		{strings.Replace(kinds["tcp"], "protocol: TCP}]", "protocol: TCP, limits: {body_bytes: 5}}]", 1), "limits.body_bytes has no effect: it is of HTTP, and the listener passes bytes through"},
		{strings.Replace(kinds["answers"], "type: FixedResponse}", "type: FixedResponse}, {type: RequestHeaderModifier, remove: x}", 1), "RequestHeaderModifier has no effect"},
		{strings.Replace(listener, "matches: [{}]", "matches: [{sni: a.example}]", 1), "sni has no effect: no listener of the route has TLS"},
	} {
		if _, err := Parse("f", []byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
	for _, file := range []string{
		"kernel_flows: off\nchecksum: forward\nspin: 5000ns\ntable: {size: 1_000_000}\n" + listener, // as it is
		"sources: {allow: 192.0.2.1, default: deny}\n" + service, "x-a: &a {limits: {packets: 4}}\n<<: *a\n" + service,
	} {
		if _, err := Parse("f", []byte(file)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := Parse("f", []byte("x-a: &a {limits: {packets: 4}}\n<<: [*a]\n"+listener)); err == nil || !strings.Contains(err.Error(), "f:1:18: limits has no effect") {
		t.Errorf("a key of a merged mapping: %v", err)
	}
}
