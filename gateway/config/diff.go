package config

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is a difference between two configurations.
type Change struct {
	What    string `json:"what"`              // "added", "removed" or "changed"
	Service string `json:"service,omitempty"` // one of these names what has changed; without any it is a top-level key
	Pool    string `json:"pool,omitempty"`
	Backend string `json:"backend,omitempty"` // of Service or Pool; "" is the service or the pool itself

	Listener string `json:"listener,omitempty"`
	Route    string `json:"route,omitempty"` // of routes, tls_routes or tcp_routes

	Key     string `json:"key,omitempty"` // of what changed
	Old     string `json:"old,omitempty"`
	New     string `json:"new,omitempty"`
	Restart bool   `json:"restart,omitempty"` // a reload refuses it
}

// keyNames are the keys of fields, where they are not the field's name in lower case, by field, or by type and
// field. "" is a field without a key.
var keyNames = map[string]string{
	"SNATPorts": "snat_ports", "ExtraProcessor": "extra_processor", "KernelFlows": "kernel_flows", "HashKey": "hash_key_file", "Addresses": "address",
	"HashSize": "hash_size", "SlowStart": "slow_start", "Reject": "unavailable", "WhenFull": "when_full", "ServerID": "server_id",
	"MaxConnections": "max_connections", "PoolBackend.Named": "address", "PoolBackend.Path": "address", "Services": "", "Backends": "", "Name": "",
	"ProxyLoops": "loops", "RequestID": "request_id", "RateLimits": "rate_limits", "ErrorPages": "error_pages", "AccessLog": "access_log", "TLSRoutes": "", "TCPRoutes": "", "Listeners": "", "Routes": "", "Pools": "",
	"AltSvc": "alt_svc", "EarlyData": "early_data", "ProxyProtocol": "proxy_protocol", "ProxyDatagrams": "http3", "BackendRefs": "backend_refs", "Idle": "idle_connections", "RetryBudget": "retry_budget",
	"MaxRequests": "max_requests", "Uses": "connection_requests", "RetryContent": "retry_content", "Panic": "panic_threshold", "ForwardPath": "forward_path", "ExpectContinue": "expect_continue", "FieldNames": "field_names", "Colliding": "colliding_fields", "Route.Listeners": "listeners", "StreamRoute.Listeners": "listeners",
}

// keyName returns the key of a field, "" for one without.
func keyName(of reflect.Type, field string) string {
	if key, ok := keyNames[of.Name()+"."+field]; ok {
		return key
	}
	if key, ok := keyNames[field]; ok {
		return key
	}
	return strings.ToLower(field)
}

// restartKeys are the top-level keys that a reload cannot change, all of them or in part.
var restartKeys = []struct {
	key, part string // part is the argument of differs: the key itself, or one below it
	differs   func(a, b *Config) bool
}{
	{"devices", "devices", func(a, b *Config) bool { return !reflect.DeepEqual(a.Devices, b.Devices) }},
	{"table", "table.size", func(a, b *Config) bool { return a.Table.Size != b.Table.Size }},
	{"table", "table.half_open", func(a, b *Config) bool { return a.Table.HalfOpen != b.Table.HalfOpen }},
	{"table", "table.fragments", func(a, b *Config) bool { return a.Table.Fragments != b.Table.Fragments }},
	{"table", "table.kernel_flows", func(a, b *Config) bool { return a.Table.KernelFlows != b.Table.KernelFlows }},
	{"kernel_flows", "kernel_flows", func(a, b *Config) bool { return a.KernelFlows != b.KernelFlows }},
	{"sync", "sync", func(a, b *Config) bool { return !sameSync(a.Sync, b.Sync) }},
	{"snat_ports", "snat_ports", func(a, b *Config) bool { return a.SNATPorts != b.SNATPorts }},
	{"cpus", "cpus", func(a, b *Config) bool { return a.CPUs.Auto != b.CPUs.Auto || !slices.Equal(a.CPUs.List, b.CPUs.List) }},
	{"extra_processor", "extra_processor", func(a, b *Config) bool { return a.ExtraProcessor != b.ExtraProcessor }},
	{"engine", "engine", func(a, b *Config) bool { return a.Engine != b.Engine }},
	{"spin", "spin", func(a, b *Config) bool { return a.Spin != b.Spin }},
	{"admin", "admin.socket", func(a, b *Config) bool { return a.Admin.Socket != b.Admin.Socket }},
	{"limits", "limits.clients", func(a, b *Config) bool { return a.Limits.Clients != b.Limits.Clients }},
	{"inspection", "inspection.flows", func(a, b *Config) bool { return a.Inspection.Flows != b.Inspection.Flows }},
	{"inspection", "inspection.memory", func(a, b *Config) bool { return a.Inspection.Memory != b.Inspection.Memory }},
	{"defence", "defence.devices", func(a, b *Config) bool { return !slices.Equal(a.Defence.devices(), b.Defence.devices()) }},
	{"listeners", "listeners", func(a, b *Config) bool { return (len(a.Listeners) == 0) != (len(b.Listeners) == 0) }},
	{"stack", "stack", func(a, b *Config) bool { return a.Stack != b.Stack }},
	{"loops", "loops", func(a, b *Config) bool { return a.ProxyLoops != b.ProxyLoops }},
	{"network", "network", func(a, b *Config) bool { return !reflect.DeepEqual(a.Network, b.Network) }},
}

// sameSync reports whether both mean the same: the file of the key may have moved.
func sameSync(a, b *Sync) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Listen == b.Listen && a.Peer == b.Peer && a.Index == b.Index && bytes.Equal(a.Key, b.Key) && a.Role.sameTransport(b.Role)
}

// NeedsRestart returns the first key that differs and that a reload cannot change, "" for none.
func NeedsRestart(old, now *Config) string {
	for _, r := range restartKeys {
		if r.differs(old, now) {
			return r.part
		}
	}
	return ""
}

// Diff returns what changes from one configuration to another: top-level keys, then services in the order of the
// configurations, each with its backends. Secrets are left out of Old and New.
func Diff(old, now *Config) (list []Change) {
	for _, c := range fields(old, now) {
		for _, r := range restartKeys {
			c.Restart = c.Restart || c.Key == r.key && r.differs(old, now)
		}
		list = append(list, c)
	}
	for _, p := range pairs(old.Services, now.Services, func(s *Service) string { return s.Name }) {
		switch {
		case p.old == nil:
			list = append(list, Change{What: "added", Service: p.now.Name, New: backends(len(p.now.Backends))})
		case p.now == nil:
			list = append(list, Change{What: "removed", Service: p.old.Name, Old: backends(len(p.old.Backends))})
		default:
			list = append(list, diffService(p.old, p.now)...)
		}
	}
	list = append(list, diffNamed(old.Listeners, now.Listeners, func(l *Listener) string { return l.Name }, func(c *Change, name string) {
		c.Listener, c.Restart = name, (len(old.Listeners) == 0) != (len(now.Listeners) == 0)
	})...)
	list = append(list, diffNamed(old.Routes, now.Routes, func(r *Route) string { return r.Name }, inRoute)...)
	list = append(list, diffNamed(old.TLSRoutes, now.TLSRoutes, func(r *StreamRoute) string { return r.Name }, inRoute)...)
	list = append(list, diffNamed(old.TCPRoutes, now.TCPRoutes, func(r *StreamRoute) string { return r.Name }, inRoute)...)
	list = append(list, diffNamed(old.Pools, now.Pools, func(p *Pool) string { return p.Name }, inPool)...)
	for _, p := range pairs(old.Pools, now.Pools, func(p *Pool) string { return p.Name }) {
		if p.old != nil && p.now != nil {
			list = append(list, diffPoolBackends(p.old, p.now)...)
		}
	}
	return list
}

func inRoute(c *Change, name string) { c.Route = name }

func inPool(c *Change, name string) { c.Pool = name }

// diffNamed returns what changes in a list whose parts have names: what comes and goes, and the keys of the others.
func diffNamed[T any](old, now []T, name func(*T) string, in func(c *Change, name string)) (list []Change) {
	for _, p := range pairs(old, now, name) {
		var changes []Change
		of := p.now
		switch {
		case p.old == nil:
			changes = []Change{{What: "added", New: size(p.now)}}
		case p.now == nil:
			changes, of = []Change{{What: "removed", Old: size(p.old)}}, p.old
		default:
			changes = fields(p.old, p.now)
		}
		for _, c := range changes {
			in(&c, name(of))
			list = append(list, c)
		}
	}
	return list
}

// size says how large a part is that comes or goes.
func size(part any) string {
	switch p := part.(type) {
	case *Listener:
		return fmt.Sprint(p.Addresses)
	case *Route:
		return plural(len(p.Rules), "rule")
	case *Pool:
		return backends(len(p.Backends))
	case *PoolBackend:
		return p.Where()
	}
	return ""
}

func diffPoolBackends(old, now *Pool) []Change {
	return diffNamed(old.Backends, now.Backends, func(b *PoolBackend) string { return b.Name }, func(c *Change, name string) {
		c.Pool, c.Backend = now.Name, name
	})
}

// pair holds the parts of one name in two configurations; nil is none.
type pair[T any] struct{ old, now *T }

// pairs returns all pairs of two lists: those of now in its order, then what is only in old.
func pairs[T any](old, now []T, name func(*T) string) (list []pair[T]) {
	was := map[string]*T{}
	for i := range old {
		was[name(&old[i])] = &old[i]
	}
	for i := range now {
		n := name(&now[i])
		list = append(list, pair[T]{was[n], &now[i]})
		delete(was, n)
	}
	for i := range old {
		if was[name(&old[i])] != nil {
			list = append(list, pair[T]{old: &old[i]})
		}
	}
	return list
}

// backends returns a number of backends in words.
func backends(n int) string { return plural(n, "backend") }

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// diffService returns what changes in a service.
func diffService(old, now *Service) (list []Change) {
	for _, c := range fields(old, now) {
		c.Service = now.Name
		list = append(list, c)
	}
	for _, p := range pairs(old.Backends, now.Backends, func(b *Backend) string { return b.Name }) {
		switch {
		case p.old == nil:
			list = append(list, Change{What: "added", Service: now.Name, Backend: p.now.Name, New: text(reflect.ValueOf(p.now.Addresses))})
		case p.now == nil:
			list = append(list, Change{What: "removed", Service: now.Name, Backend: p.old.Name, Old: text(reflect.ValueOf(p.old.Addresses))})
		default:
			for _, c := range fields(p.old, p.now) {
				c.Service, c.Backend = now.Name, p.now.Name
				list = append(list, c)
			}
		}
	}
	return list
}

// fields returns the exported fields that differ, as changes of keys.
func fields[T any](old, now *T) (list []Change) {
	a, b := reflect.ValueOf(old).Elem(), reflect.ValueOf(now).Elem()
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := keyName(a.Type(), f.Name)
		if key == "" || !f.IsExported() || reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			continue
		}
		list = append(list, Change{What: "changed", Key: key, Old: text(a.Field(i)), New: text(b.Field(i))})
	}
	return list
}

// text returns a value as people read it, "" for what has parts: a block of keys may hold secrets, and is long.
func text(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "none"
		}
		return ""
	case reflect.Struct:
		if _, ok := v.Interface().(fmt.Stringer); !ok {
			return ""
		}
	case reflect.Slice:
		if _, ok := v.Type().Elem().MethodByName("String"); !ok {
			return ""
		}
	}
	return fmt.Sprint(v.Interface())
}

// String returns the change as one line.
func (c Change) String() string {
	sign := map[string]string{"added": "+", "removed": "-", "changed": "~"}[c.What]
	name := ""
	switch {
	case c.Backend != "":
		name = "backend " + c.Service + c.Pool + "/" + c.Backend
	case c.Pool != "":
		name = "pool " + c.Pool
	case c.Listener != "":
		name = "listener " + c.Listener
	case c.Route != "":
		name = "route " + c.Route
	case c.Service != "":
		name = "service " + c.Service
	}
	line := sign
	if name != "" {
		line += " " + name
	}
	switch {
	case c.What != "changed" && c.New+c.Old == "":
	case c.What != "changed":
		line += " (" + c.New + c.Old + ")"
	case name != "":
		line += ": " + c.Key
	default:
		line += " " + c.Key
	}
	if c.What == "changed" && (c.Old != "" || c.New != "") {
		shown := func(s string) string {
			if s == "" {
				return "..."
			}
			return s
		}
		line += " " + shown(c.Old) + " -> " + shown(c.New)
	}
	if c.Restart {
		line += " (needs a restart: a reload refuses it)"
	}
	return line
}
