package config

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/strictyaml"
)

// WAF configures the rules of a web application firewall that requests of a listener or of a route are evaluated by.
type WAF struct {
	Mode      WAFMode       // key "mode": "detect" (default), "prevent" or, of a route, "off"
	Rules     []string      // key "rules", required unless off: files, or patterns of them, relative to the configuration's; "crs" is OWASP's Core Rule Set
	Exclude   []RuleRange   // key "exclude": IDs of rules that are left out, or ranges of them; default none
	BodyBytes int           // key "body_bytes": of a message's content that rules see, default 16384
	Excess    WAFExcess     // key "excess", with prevent: what follows from content of a request beyond that: "reject" (default) or "pass"
	Timeout   time.Duration // key "timeout": of one evaluation, default 1s: a message without a verdict by then is not served with prevent
	Responses bool          // key "responses": responses of backends are evaluated too, default false
}

// RuleRange is the IDs of rules of a firewall from First to Last.
type RuleRange struct{ First, Last int }

// maxRuleID bounds the IDs of rules of a firewall.
const maxRuleID = 1<<31 - 1

// WAFMode defines what follows from rules that deny.
type WAFMode string

// The values of WAFMode.
const (
	WAFDetect  WAFMode = "detect"  // a reason in the access log
	WAFPrevent WAFMode = "prevent" // the client is answered the rule's status
	WAFOff     WAFMode = "off"     // a route's requests are not evaluated, although the listener has rules
)

// WAFExcess defines what follows from content that rules do not see.
type WAFExcess string

// The values of WAFExcess.
const (
	WAFReject WAFExcess = "reject" // the request gets 413
	WAFPass   WAFExcess = "pass"   // rules see the beginning
)

func newWAF() *WAF {
	return &WAF{Mode: WAFDetect, BodyBytes: 16 << 10, Excess: WAFReject, Timeout: time.Second}
}

// wafPlace is where the parts of a WAF stand; all are nil without one.
type wafPlace struct{ node, mode, rules, exclude, excess *yaml.Node }

// wafDecoder reads firewalls.
type wafDecoder struct{ *l7Decoder }

// wafChecker compares firewalls with the rest of the file.
type wafChecker struct{ *checker }

// key reads the key of a listener or a route.
func (d wafDecoder) key(to **WAF, at *wafPlace) strictyaml.Field {
	return strictyaml.Optional("waf", func(n *yaml.Node) {
		w := newWAF()
		*to, at.node = w, n
		d.Mapping(n, "waf",
			strictyaml.Optional("mode", func(n *yaml.Node) {
				at.mode = n
				strictyaml.Choice(d.Decoder, n, "mode", &w.Mode, WAFDetect, WAFPrevent, WAFOff)
			}),
			strictyaml.Optional("rules", func(n *yaml.Node) {
				at.rules = n
				d.OneOrMore(n, "rules", maxRuleFiles, func(n *yaml.Node) {
					if s := ""; d.placedText(n, "rules", &s) {
						w.Rules = append(w.Rules, s)
					}
				})
			}),
			strictyaml.Optional("exclude", func(n *yaml.Node) { at.exclude = n; d.exclude(n, w) }),
			strictyaml.Optional("body_bytes", func(n *yaml.Node) { strictyaml.Integer(d.Decoder, n, "body_bytes", &w.BodyBytes, 1024, 16<<20) }),
			strictyaml.Optional("excess", func(n *yaml.Node) {
				at.excess = n
				strictyaml.Choice(d.Decoder, n, "excess", &w.Excess, WAFReject, WAFPass)
			}),
			strictyaml.Optional("timeout", func(n *yaml.Node) { d.Duration(n, "timeout", &w.Timeout, 10*time.Millisecond, time.Minute) }),
			strictyaml.Optional("responses", func(n *yaml.Node) { d.Truth(n, "responses", &w.Responses) }),
		)
	})
}

// exclude reads the rules that are left out.
func (d wafDecoder) exclude(n *yaml.Node, w *WAF) {
	d.OneOrMore(n, "exclude", maxExcepted, func(n *yaml.Node) {
		s := ""
		if !numberOrText(d.decoder, n, "exclude", &s) {
			return
		}
		first, last, ranged := strings.Cut(s, "-")
		if !ranged {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 1 || to < from || to > maxRuleID {
			d.Fail(n, "such as 942100, or 942000-942999", "%q is neither the ID of a rule nor a range of them", s)
			return
		}
		w.Exclude = append(w.Exclude, RuleRange{from, to})
	})
}

// check reports firewalls without rules, and those that evaluate nothing.
func (d wafChecker) check(c *Config) {
	for i := range c.Listeners {
		l, at := &c.Listeners[i], &d.places.listeners[i].waf
		switch {
		case l.WAF == nil:
		case !l.Protocol.IsHTTP() && l.Protocol != "":
			d.Fail(at.node, "leave it out", "waf is for HTTP and HTTPS, and listener %q is %s", l.Name, l.Protocol)
		case l.WAF.Mode == WAFOff:
			d.Fail(at.mode, "leave waf out; off is for routes of a listener that has rules", "waf of listener %q is off", l.Name)
		default:
			d.one(l.WAF, at)
		}
	}
	for i := range c.Routes {
		r, at := &c.Routes[i], &d.places.routes[i].waf
		switch {
		case r.WAF == nil:
		case r.WAF.Mode != WAFOff:
			d.one(r.WAF, at)
		case !slices.ContainsFunc(r.listenersOf(c), func(l *Listener) bool { return l.WAF != nil }):
			d.Fail(at.mode, leaveOut, "waf of route %q has no effect: no listener of the route has rules", r.Name)
		case len(r.WAF.Rules) > 0:
			d.Fail(at.rules, "leave one of them out", "rules has no effect: mode is off")
		case at.exclude != nil && !d.FailedAt(at.exclude):
			d.Fail(at.exclude, "leave one of them out", "exclude has no effect: mode is off")
		}
	}
}

// one reports what is wrong with a firewall that is on.
func (d wafChecker) one(w *WAF, at *wafPlace) {
	if len(w.Rules) == 0 && (at.rules == nil || !d.FailedAt(at.rules)) {
		d.Fail(at.node, "name files of rules, or crs for OWASP's Core Rule Set", `waf lacks the key "rules"`)
	}
	if w.Mode == WAFDetect && at.excess != nil && !d.FailedAt(at.excess) {
		d.Fail(at.excess, "set `mode: prevent`, or leave it out", "excess has no effect: mode is detect, which refuses nothing")
	}
}

// WAFOf returns the firewall of a route's requests at a listener, nil for none. ofRoute reports whether the route has it.
func (l *Listener) WAFOf(r *Route) (w *WAF, ofRoute bool) {
	if w = r.WAF; w == nil {
		return l.WAF, false
	}
	if w.Mode == WAFOff {
		return nil, true
	}
	return w, true
}

// HasWAF reports whether some request is evaluated by rules.
func (c *Config) HasWAF() bool {
	return slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.WAF != nil }) ||
		slices.ContainsFunc(c.Routes, func(r Route) bool { return r.WAF != nil && r.WAF.Mode != WAFOff })
}
