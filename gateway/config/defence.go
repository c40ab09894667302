package config

import (
	"fmt"
	"net/netip"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/internal/strictyaml"
)

// Defence drops and limits packets by their sources in XDP, before the kernel allocates anything for them. A source is an
// IPv4 address or an IPv6 /64 prefix.
type Defence struct {
	Devices []string      // key "devices": interfaces, default those of the gateway
	Drop    []SourceList  // key "drop"
	Accept  []SourceList  // key "accept": never dropped or limited in XDP
	Rates   []DefenceRate // key "rates"
	SYNRate int           // key "syn_rate": SYNs a second and CPU to listeners of the kernel, beyond which cookies answer them; 0 is off

	Time time.Duration // key "time": how long a verdict of the gateway is in force, default 1m
	Max  int           // key "max_verdicts": at one time, beyond the lists, default 65536

	Limits     *DefenceLimits     // key "limits": verdicts on sources beyond the top-level limits; nil is none
	Clients    *DefenceClients    // key "clients": verdicts on clients of listeners; nil is none
	Inspection *DefenceInspection // key "inspection": verdicts on sources of what inspection drops; nil is none
}

// DefenceRate limits each source of some prefixes.
type DefenceRate struct {
	Sources []SourceList // key "sources", required
	Packets int          // key "packets", required: a second
	Burst   int          // key "burst": packets at once, default a tenth of a second's
}

// DefenceLimits defines when a source that exceeds limits.packets or limits.connections is limited or dropped in XDP.
type DefenceLimits struct {
	Excess int           // key "excess": packets beyond a limit in a second, at one loop, default 1000
	Action string        // key "action": "limit" (default) to limits.packets, or "drop"
	Time   time.Duration // key "time", default that of the defence
}

// DefenceClients defines when a client whose requests are malformed, or who floods, is dropped in XDP.
type DefenceClients struct {
	Refused int           // key "refused": requests in the window, at one worker, default 20
	Window  time.Duration // key "window", default 10s
	Time    time.Duration // key "time", default that of the defence
}

// DefenceInspection reports that clients whose packets a rule of inspection drops are dropped in XDP.
type DefenceInspection struct {
	Time time.Duration // key "time", default that of the defence
}

// DefencePrefix is an entry of the lists of a Defence.
type DefencePrefix struct {
	Prefix  netip.Prefix
	Rule    string // its list: "drop blocked.txt", or "drop 198.51.100.0/24" for a prefix of the configuration
	Accept  bool
	Packets int // a second, of each source; 0: none
	Burst   int // 0: the default
}

// DefenceLists are the lists of a Defence with the contents of their files.
type DefenceLists struct {
	Prefixes []DefencePrefix // each prefix once
	Accepted *lpm.Table      // leads to SourceAllow in prefixes that are accepted, and to SourceDeny in others
}

// Bounds of a defence. Rules count in arrays of the kernel of a fixed size, and lists are tries of a fixed size.
const (
	maxDefenceRules    = 1024
	maxDefencePrefixes = 1 << 20
	maxDefenceTime     = 24 * time.Hour
)

func newDefence() *Defence { return &Defence{Time: time.Minute, Max: 65536} }

func (d *decoder) defence(n *yaml.Node, c *Config) {
	v := newDefence()
	c.Defence = v
	lists := func(name string, to *[]SourceList) strictyaml.Field {
		return strictyaml.Optional(name, func(n *yaml.Node) { *to = d.sourceLists(n, name) })
	}
	d.Mapping(n, "defence",
		strictyaml.Optional("devices", func(n *yaml.Node) {
			d.OneOrMore(n, "devices", maxDevices, func(n *yaml.Node) {
				if name := ""; d.Takes(strictyaml.Schema{Type: "string", Title: "interface"}) {
				} else if d.deviceName(n, "devices", &name); name != "" {
					v.Devices = append(v.Devices, name)
				}
			})
		}),
		lists("drop", &v.Drop),
		lists("accept", &v.Accept),
		strictyaml.Optional("rates", func(n *yaml.Node) { d.defenceRates(n, v) }),
		strictyaml.Optional("syn_rate", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "syn_rate", &v.SYNRate, 0, maxRate) }),
		d.defenceTime(&v.Time),
		strictyaml.Optional("max_verdicts", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "max_verdicts", &v.Max, 1, maxDefencePrefixes/2) }),
		strictyaml.Optional("limits", func(n *yaml.Node) { d.defenceLimits(n, v) }),
		strictyaml.Optional("clients", func(n *yaml.Node) { d.defenceClients(n, v) }),
		strictyaml.Optional("inspection", func(n *yaml.Node) {
			v.Inspection = &DefenceInspection{}
			d.Mapping(n, "inspection", d.defenceTime(&v.Inspection.Time))
		}),
	)
	d.places.defence = n
	for _, t := range v.times() {
		if *t == 0 {
			*t = v.Time
		}
	}
}

// times are the times of verdicts whose default is Time.
func (v *Defence) times() (list []*time.Duration) {
	if v.Limits != nil {
		list = append(list, &v.Limits.Time)
	}
	if v.Clients != nil {
		list = append(list, &v.Clients.Time)
	}
	if v.Inspection != nil {
		list = append(list, &v.Inspection.Time)
	}
	return list
}

func (d *decoder) defenceTime(to *time.Duration) strictyaml.Field {
	return strictyaml.Optional("time", func(n *yaml.Node) { d.Duration(n, "time", to, time.Second, maxDefenceTime) })
}

func (d *decoder) defenceRates(n *yaml.Node, v *Defence) {
	d.List(n, "rates", maxLists, func(n *yaml.Node) {
		var r DefenceRate
		d.Mapping(n, "a rate",
			strictyaml.Required("sources", func(n *yaml.Node) { r.Sources = d.sourceLists(n, "sources") }),
			strictyaml.Required("packets", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "packets", &r.Packets, 1, maxRate) }),
			strictyaml.Optional("burst", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "burst", &r.Burst, 1, maxRate) }),
		)
		v.Rates = append(v.Rates, r)
	})
}

func (d *decoder) defenceLimits(n *yaml.Node, v *Defence) {
	l := &DefenceLimits{Excess: 1000, Action: "limit"}
	v.Limits = l
	d.Mapping(n, "limits",
		strictyaml.Optional("excess", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "excess", &l.Excess, 1, maxRate) }),
		strictyaml.Optional("action", func(n *yaml.Node) { strictyaml.Choice(d.Decoder, n, "action", &l.Action, "limit", "drop") }),
		d.defenceTime(&l.Time),
	)
}

func (d *decoder) defenceClients(n *yaml.Node, v *Defence) {
	l := &DefenceClients{Refused: 20, Window: 10 * time.Second}
	v.Clients = l
	d.Mapping(n, "clients",
		strictyaml.Optional("refused", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "refused", &l.Refused, 1, maxRate) }),
		strictyaml.Optional("window", func(n *yaml.Node) { d.Duration(n, "window", &l.Window, time.Second, time.Hour) }),
		d.defenceTime(&l.Time),
	)
}

// devices returns the devices of the defence, none where there is no defence.
func (v *Defence) devices() []string {
	if v == nil {
		return nil
	}
	return v.Devices
}

// checkDefence reports what of the defence does not go with the rest of the file.
func (d *checker) checkDefence(c *Config) {
	v, n := c.Defence, d.places.defence
	if v == nil {
		return
	}
	if len(v.Devices) == 0 {
		for i := range c.Devices {
			v.Devices = append(v.Devices, c.Devices[i].Name)
		}
	}
	switch limits := &c.Limits; {
	case len(v.Devices) == 0:
		d.Fail(n, "name interfaces in defence.devices", "the defence has no devices, and the gateway has none")
	case v.Limits != nil && limits.Packets == 0 && limits.Connections == 0:
		d.Fail(n, "set limits.packets", "defence.limits is about the top-level limits, which are not set")
	case v.Limits != nil && v.Limits.Action == "limit" && limits.Packets == 0:
		d.Fail(n, "set limits.packets, or defence.limits.action to drop", "defence.limits limits sources to limits.packets, which is not set")
	case v.Clients != nil && len(c.Listeners) == 0:
		d.Fail(n, "", "defence.clients is about clients of listeners, and there are none")
	case v.Inspection != nil && !c.inspectionPrevents():
		d.Fail(n, "set `mode: prevent` in a policy of inspection", "defence.inspection is about clients whose packets inspection drops, and no policy drops any")
	case len(v.Drop)+len(v.Accept)+len(v.Rates) > maxDefenceRules:
		d.Fail(n, "join lists into files", "the defence has more than %d lists", maxDefenceRules)
	}
	names := map[string]bool{}
	for _, name := range v.Devices {
		if names[name] {
			d.Fail(n, "", "defence.devices names %q twice", name)
		}
		names[name] = true
	}
}

// DefenceLists returns the lists of the defence. ReadLists has read them.
func (c *Config) DefenceLists() *DefenceLists { return c.defence }

// defence reads the lists of the defence. A prefix that stands in a list twice counts once; one in two lists that say
// different things is an error.
func (r *listReader) defence(v *Defence) *DefenceLists {
	if v == nil {
		return nil
	}
	known := map[netip.Prefix]listedAs{}
	out := &DefenceLists{}
	add := func(key string, lists []SourceList, like DefencePrefix) {
		for _, l := range lists {
			entries, name := r.file(l.File), l.File
			if l.File == "" {
				entries, name = []listed{newListed(l.Prefix)}, l.Prefix.String()
			}
			for i := range entries {
				e := like
				e.Prefix, e.Rule = entries[i].prefix(), key+" "+name
				if was, ok := known[e.Prefix]; ok {
					if was.key != key || was.packets != like.Packets || was.burst != like.Burst {
						r.fail(&entries[i], fmt.Sprintf("%s is already in %s", e.Prefix, was.key))
					}
					continue
				}
				known[e.Prefix] = listedAs{key, like.Packets, like.Burst}
				out.Prefixes = append(out.Prefixes, e)
			}
		}
	}
	add("accept", v.Accept, DefencePrefix{Accept: true})
	add("drop", v.Drop, DefencePrefix{})
	for i := range v.Rates {
		add("rates", v.Rates[i].Sources, DefencePrefix{Packets: v.Rates[i].Packets, Burst: v.Rates[i].Burst})
	}
	routes := make([]lpm.Route, len(out.Prefixes))
	for i := range out.Prefixes {
		p := &out.Prefixes[i]
		routes[i] = lpm.Route{Prefix: p.Prefix, NextHop: SourceDeny}
		if p.Accept {
			routes[i].NextHop = SourceAllow
		}
	}
	table, err := lpm.Compile(routes)
	if err != nil {
		panic(err) // prefixes are checked, and each is there once
	}
	out.Accepted = table
	return out
}

// listedAs says in which list a prefix is, and with which rate.
type listedAs struct {
	key     string
	packets int
	burst   int
}
