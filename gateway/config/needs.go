package config

import "slices"

const addServices = "add services, or leave it out"

// rootNeeds are the needs of keys of the root.
var rootNeeds = []need[Config]{
	{
		keys: []string{"snat", "snat_ports", "checksum", "kernel_flows", "tunnel", "sources", "limits", "table", "sync"},
		met:  func(c *Config, _ *Config) bool { return len(c.Services) > 0 || len(c.Listeners) == 0 },
		why:  "it is for services, and there are none; listeners do not apply it", hint: addServices,
	},
	{
		keys: []string{"bgp"}, met: func(c *Config, _ *Config) bool {
			return c.anyService(func(s *Service) bool { return s.Announce != nil }) ||
				slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.Announce != nil })
		},
		why: "it announces addresses of services and listeners, and none has announce", hint: "add `announce: {}` to services or listeners, or leave it out",
	},
	{
		keys: []string{"bgp.local_preference"}, met: func(c *Config, _ *Config) bool { return c.BGP == nil || c.BGP.internalPeer() },
		why: "it is for peers of the same AS, and there are none", hint: "set med or communities, or leave it out",
	},
	{
		keys: []string{"bgp.prepend"}, met: func(c *Config, _ *Config) bool { return c.BGP == nil || c.BGP.externalPeer() },
		why: "it is for peers of another AS, and there are none", hint: "set local_preference, or leave it out",
	},
	{
		keys: []string{"sync.role.preempt_delay"}, met: func(c *Config, _ *Config) bool { return c.Sync == nil || c.Sync.Role == nil || c.Sync.Role.Preempt },
		why: "it is for `preempt: true`", hint: "set preempt, or leave it out",
	},
	{
		keys: []string{"inspection"}, met: func(c *Config, _ *Config) bool {
			return len(c.Services) > 0 || len(c.Listeners) == 0 || c.Inspection.anyPolicy(func(p *InspectionPolicy) bool { return !p.OfPackets() })
		},
		why: "its policies are for services, and there are none", hint: "name listeners in a policy, or leave it out",
	},
	{
		keys: []string{"inspection.packets"}, met: func(c *Config, _ *Config) bool { return c.Inspection.anyPolicy((*InspectionPolicy).OfPackets) },
		why: "it is about packets, and all policies are for listeners", hint: leaveOut,
	},
	{
		keys: []string{"engine", "cpus", "spin", "extra_processor"},
		met:  func(c *Config, _ *Config) bool { return len(c.Devices) > 0 || len(c.Services) > 0 },
		why:  "it is for the loops of devices, and there are none", hint: leaveOut,
	},
	{
		keys: []string{"hash_key_file"},
		met: func(c *Config, _ *Config) bool {
			return len(c.Services) > 0 || slices.ContainsFunc(c.Pools, func(p Pool) bool { return p.Balance == PoolConsistentHash || p.Sticky != nil })
		},
		why: "nothing selects by a hash", hint: "it is for services, and for pools with `balance: consistent_hash` or sticky",
	},
	{
		keys: []string{"admin.hosts", "admin.token_file"}, met: func(c *Config, _ *Config) bool { return c.Admin.Listen != "" },
		why: "it is about the dashboard, and there is none", hint: "set admin.listen, or leave it out",
	},
	{
		keys: []string{"access_log.fields"}, met: func(c *Config, _ *Config) bool { return c.AccessLog.Format == LogJSON },
		why: "it is about lines of JSON", hint: "leave format out, or fields",
	},
	{
		keys: []string{"access_log.template"}, met: func(c *Config, _ *Config) bool { return c.AccessLog.Format == LogText },
		why: "it is for `format: text`", hint: "set `format: text`, or leave it out",
	},
	{
		keys: []string{"access_log.rotate"}, met: func(c *Config, _ *Config) bool { return c.AccessLog.File != "-" && c.AccessLog.Syslog == nil },
		why: "it is for a file", hint: leaveOut,
	},
	{
		keys: []string{"access_log.sample.slow"}, met: func(c *Config, _ *Config) bool { return c.AccessLog.Sample.OneIn > 1 },
		why: "each request has a line", hint: "set one_in, or leave it out",
	},
	{
		keys: []string{"resolver"}, met: func(c *Config, _ *Config) bool { return len(c.Names()) > 0 || len(c.Listeners) == 0 },
		why: "no backend of a pool has a name", hint: "set address to name:port or srv:name in a pool, or leave it out",
	},
	ofServices("it is for services with `mode: nat`, and there are none", func(s *Service) bool { return !s.Mode.Direct() }, "snat_ports", "kernel_flows"),
	ofServices("it is for services with mode ipip or gue, and there are none", func(s *Service) bool { return s.Mode == ModeIPIP || s.Mode == ModeGUE }, "tunnel.too_big"),
	ofServices("it is for services with `mode: gue`, and there are none", func(s *Service) bool { return s.Mode == ModeGUE }, "tunnel.gue_port"),
	ofServices("it is for services with `protocol: tcp`, and there are none", func(s *Service) bool { return s.Protocol == "tcp" }, "table.tcp"),
	ofServices("it is for services with `protocol: udp`, and there are none", func(s *Service) bool { return s.Protocol == "udp" }, "table.udp"),
	{
		keys: []string{"snat_ports"}, met: func(c *Config, _ *Config) bool { return len(c.SNAT) > 0 },
		why: "it is about the addresses of snat, and there are none", hint: "add snat, or leave it out",
	},
	{
		keys: []string{"table.kernel_flows"}, met: func(c *Config, _ *Config) bool { return c.KernelFlows != KernelFlowsOff },
		why: "kernel_flows is off", hint: "set `kernel_flows: auto`, or leave it out",
	},
	{
		keys: []string{"sources.allow"}, met: func(c *Config, _ *Config) bool { return c.Sources.restrict() },
		why: "every client is allowed", hint: "set `default: deny`, so that only these clients are served",
	},
	{
		keys: []string{"limits.burst"}, met: func(c *Config, _ *Config) bool { return c.Limits.bound() },
		why: "there is no limit", hint: "set packets or connections",
	},
	{
		keys: []string{"limits.clients"},
		met: func(c *Config, _ *Config) bool {
			return c.Limits.bound() || c.anyService(func(s *Service) bool { return s.Limits.bound() })
		},
		why: "there is no limit", hint: "set packets or connections",
	},
	{
		keys: []string{"inspection.overload"}, met: func(c *Config, _ *Config) bool { return c.inspectionPrevents() },
		why: "it is for policies with `mode: prevent`, and there are none", hint: "set `mode: prevent` in a policy, or leave it out",
	},
	{
		keys: []string{
			"inspection.variables", "inspection.variables_file", "inspection.classification", "inspection.flows", "inspection.memory", "inspection.alerts.buffer", "inspection.alerts.payload", "inspection.alerts.file",
		},
		met: func(c *Config, _ *Config) bool {
			return slices.ContainsFunc(c.Inspection.Policies, func(p InspectionPolicy) bool { return p.decides() })
		},
		why: "there are no rules that could match", hint: "name files in rules or access of a policy, or leave it out",
	},
}

// ofServices is the need of keys that are for some services alone. Without any service the first need has reported them.
func ofServices(why string, has func(*Service) bool, keys ...string) need[Config] {
	return need[Config]{keys: keys, why: why, hint: leaveOut, met: func(c *Config, _ *Config) bool { return len(c.Services) == 0 || c.anyService(has) }}
}

// restrict reports whether some client may be denied.
func (s *Sources) restrict() bool { return s.Default == "deny" || len(s.Deny) > 0 }

// bound reports whether there is a limit.
func (l *Limits) bound() bool { return l.Packets > 0 || l.Connections > 0 }

// inspectionPrevents reports whether some policy drops packets or ends requests.
func (c *Config) inspectionPrevents() bool {
	return c.Inspection.anyPolicy(func(p *InspectionPolicy) bool { return p.preventsFor(c) })
}

// anyPolicy reports whether some policy has a property.
func (i *Inspection) anyPolicy(has func(*InspectionPolicy) bool) bool {
	for k := range i.Policies {
		if has(&i.Policies[k]) {
			return true
		}
	}
	return false
}

// decides reports whether the policy has rules, beside a capture.
func (p *InspectionPolicy) decides() bool { return len(p.Rules) > 0 || len(p.Access) > 0 }

var deviceNeeds = []need[Device]{{
	keys: []string{"mode"}, met: func(_ *Config, v *Device) bool { return v.Driver == "auto" || v.Driver == "afxdp" },
	why: "it is the mode of XDP, and the driver is another", hint: "set `driver: afxdp`, or leave it out",
}}

var policyNeeds = []need[InspectionPolicy]{
	{
		keys: []string{"access", "capture", "devices", "overlaps", "urgent"}, met: func(_ *Config, p *InspectionPolicy) bool { return p.OfPackets() },
		why: "it is about packets, and the policy is for requests alone", hint: leaveOut,
	},
	{
		keys: []string{"listeners", "routes"}, met: func(_ *Config, p *InspectionPolicy) bool { return len(p.Rules) > 0 },
		why: "the policy has no rules on requests", hint: "name files in rules",
	},
	{
		keys: []string{"hold"}, met: func(c *Config, p *InspectionPolicy) bool { return p.OfRequests() && p.preventsFor(c) },
		why: "it is for listeners and routes with `mode: prevent`", hint: "name some and set `mode: prevent`, or leave it out",
	},
	{
		keys: []string{"overlaps", "urgent"}, met: func(_ *Config, p *InspectionPolicy) bool { return p.Mode == InspectionPrevent },
		why: "the policy has `mode: detect`, which drops nothing", hint: "set `mode: prevent`, or leave it out",
	},
	{
		keys: []string{"mode", "overlaps", "urgent"}, met: func(_ *Config, p *InspectionPolicy) bool { return p.decides() },
		why: "the policy has no rules", hint: "name files in rules or access",
	},
	{
		keys: []string{"lenient"}, met: func(_ *Config, p *InspectionPolicy) bool { return len(p.Rules) > 0 },
		why: "the policy has no rules", hint: "name files in rules, or leave it out",
	},
}

var serviceNeeds = []need[Service]{
	{
		keys: []string{"announce.local_preference"}, met: func(c *Config, _ *Service) bool { return c.BGP == nil || c.BGP.internalPeer() },
		why: "it is for peers of the same AS, and there are none", hint: "set med or communities, or leave it out",
	},
	{
		keys: []string{"announce.prepend"}, met: func(c *Config, _ *Service) bool { return c.BGP == nil || c.BGP.externalPeer() },
		why: "it is for peers of another AS, and there are none", hint: "set local_preference, or leave it out",
	},
	{
		keys: []string{"unhealthy"}, met: func(_ *Config, s *Service) bool { return s.Health != nil },
		why: "the service has no health check that a backend could fail", hint: "add health, or leave it out",
	},
	{
		keys: []string{"unknown"}, met: func(_ *Config, s *Service) bool { return s.Protocol == "tcp" || s.Unknown == UnknownDrop },
		why: "it is about TCP segments, and the service is udp", hint: "leave it out; drop keeps closed ports of the address silent",
	},
	{
		keys: []string{"when_full"},
		met: func(_ *Config, s *Service) bool {
			return slices.ContainsFunc(s.Backends, func(b Backend) bool { return b.MaxConnections > 0 })
		},
		why: "no backend has max_connections", hint: "set max_connections of backends, or leave it out",
	},
	{
		keys: []string{"persistence.prefix4"}, met: func(_ *Config, s *Service) bool { return s.hasFamily(true) },
		why: "the service has no IPv4 address", hint: leaveOut,
	},
	{
		keys: []string{"persistence.prefix6"}, met: func(_ *Config, s *Service) bool { return s.hasFamily(false) },
		why: "the service has no IPv6 address", hint: leaveOut,
	},
	{
		keys: []string{"sources.allow"}, met: func(_ *Config, s *Service) bool { return s.Sources.restrict() },
		why: "every client is allowed", hint: "set `default: deny`, so that only these clients are served",
	},
	{
		keys: []string{"limits.burst"}, met: func(_ *Config, s *Service) bool { return s.Limits.bound() },
		why: "there is no limit", hint: "set packets or connections",
	},
}

// hasFamily reports whether the service has an address of the family, or one that could not be read.
func (s *Service) hasFamily(is4 bool) bool {
	return len(s.Addresses) == 0 || slices.ContainsFunc(s.Addresses, func(a AddrPorts) bool { return a.Addr().Is4() == is4 })
}

var listenerNeeds = []need[Listener]{
	{
		keys: []string{
			"timeouts.request_header", "timeouts.request_body", "timeouts.idle", "limits.connection_requests", "limits.streams", "limits.target_bytes",
			"limits.header_bytes", "limits.header_fields", "limits.body_bytes", "rate_limits", "error_pages",
		},
		met: func(_ *Config, l *Listener) bool { return l.Protocol == "" || l.Protocol.IsHTTP() },
		why: "it is of HTTP, and the listener passes bytes through", hint: leaveOut,
	},
	{
		keys: []string{"timeouts.handshake"},
		met: func(_ *Config, l *Listener) bool {
			return l.Protocol != ListenerHTTP && l.Protocol != ListenerTCP || len(l.ProxyProtocol) > 0
		},
		why: "the listener has neither TLS nor the PROXY protocol", hint: "leave it out; timeouts.request_header bounds the first request",
	},
	{
		keys: []string{"limits.streams"},
		met: func(_ *Config, l *Listener) bool {
			return !l.Protocol.IsHTTP() || slices.Contains(l.Versions, HTTP2) || l.HTTP3()
		},
		why: "it is of HTTP/2 and HTTP/3, and the listener has HTTP/1.1 alone", hint: `add "2" to versions, or leave it out`,
	},
	{
		keys: []string{"sources.allow"}, met: func(_ *Config, l *Listener) bool { return l.Sources.restrict() },
		why: "every client is allowed", hint: "set `default: deny`, so that only these clients are served",
	},
	{
		keys: []string{"tls.client_auth.forward_chain"},
		met: func(_ *Config, l *Listener) bool {
			return l.TLS == nil || l.TLS.ClientAuth == nil || l.TLS.ClientAuth.Forward != ForwardCertNone
		},
		why: "backends learn nothing of the certificate", hint: "set `forward: client-cert` or x-forwarded-client-cert",
	},
}

var poolNeeds = []need[Pool]{
	{
		keys: []string{
			"idle_connections", "connection_requests", "retry_content", "limits.header_bytes", "limits.header_fields", "timeouts.response", "timeouts.body",
			"timeouts.idle",
		},
		met: func(_ *Config, p *Pool) bool { return p.Protocol != PoolTCP },
		why: "it is of HTTP, and the pool passes TCP through", hint: leaveOut,
	},
	{
		keys: []string{"panic_threshold"}, met: func(_ *Config, p *Pool) bool { return p.Health != nil || p.Passive != nil },
		why: "without health and passive every backend counts as up", hint: "add health or passive, or leave it out",
	},
}

var routeNeeds = []need[Route]{
	{
		keys: []string{"sources.allow"}, met: func(_ *Config, r *Route) bool { return r.Sources.restrict() },
		why: "every client is allowed", hint: "set `default: deny`, so that only these clients are served",
	},
	{
		keys: []string{"concurrency.wait"}, met: func(_ *Config, r *Route) bool { return r.Concurrency == nil || r.Concurrency.Pending > 0 },
		why: "pending is 0: no request waits", hint: "leave one of them out",
	},
	{
		keys: []string{"forward_path", "expect_continue", "upgrades", "concurrency", "limits.body_bytes"},
		met: func(_ *Config, r *Route) bool {
			return slices.ContainsFunc(r.Rules, func(u Rule) bool { return !u.answers() })
		},
		why: "all rules of the route answer by themselves", hint: leaveOut,
	},
	{
		keys: []string{"upgrades"},
		met: func(c *Config, r *Route) bool {
			list := r.listenersOf(c)
			return len(list) == 0 || slices.ContainsFunc(list, func(l *Listener) bool { return slices.Contains(l.Versions, HTTP1) })
		},
		why: "it is of HTTP/1.1, which no listener of the route has", hint: `add "1.1" to versions of a listener, or leave it out`,
	},
}

var ruleNeeds = []need[Rule]{
	{
		keys: []string{"timeouts", "retry", "cache", "early_hints"}, met: func(_ *Config, u *Rule) bool { return !u.answers() },
		why: "the rule answers by itself", hint: leaveOut,
	},
	{
		keys: []string{"retry.codes"}, met: func(_ *Config, u *Rule) bool { return u.Retry.Attempts > 0 },
		why: "attempts is 0", hint: "set attempts, or leave it out",
	},
}

var matchNeeds = []need[matched]{
	{
		keys: []string{"ja4", "alpn"}, met: func(c *Config, m *matched) bool { return m.sees(c, func(l *Listener) bool { return l.TLS != nil }) },
		why: "no listener of the route has TLS, so that nothing matches", hint: "set `protocol: HTTPS` of a listener, or leave it out",
	},
	{
		keys: []string{"sni"},
		met: func(c *Config, m *matched) bool {
			return m.sees(c, func(l *Listener) bool { return l.TLS != nil || len(l.ProxyProtocol) > 0 })
		},
		why: "no listener of the route has TLS or the PROXY protocol, so that nothing matches", hint: "set `protocol: HTTPS` of a listener, or leave it out",
	},
}

// sees reports whether a listener of the route has a property. Without listeners, or with wrong ones, others report that.
func (m *matched) sees(c *Config, has func(*Listener) bool) bool {
	list := m.route.listenersOf(c)
	return len(list) == 0 || slices.ContainsFunc(list, has)
}
