package control

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/waf"
	"github.com/millrace/millrace/metrics"
)

// firewalls are those of a configuration.
type firewalls struct {
	sets      []firewall               // each once, however many listeners and routes have it
	listeners map[string]*waf.Firewall // by the listener's name
	routes    map[string]*waf.Firewall // by the route's
	counts    firewallCounts
}

// firewall is a set of rules in use.
type firewall struct {
	cfg   config.WAF
	rules waf.Ruleset
}

// firewallCounts are the counters of firewalls. They outlive reloads.
type firewallCounts struct{ listeners, routes map[string]*waf.Counts }

// CheckFirewalls reads the rules of the firewalls of a configuration as a gateway does, and returns their errors. compile is nil of a program
// that has no engine for them.
func CheckFirewalls(cfg *config.Config, compile waf.Compiler) error {
	var check waf.Compiler
	if compile != nil {
		check = func(s waf.Settings) (waf.Ruleset, error) {
			s.Check = true
			return compile(s)
		}
	}
	f, err := planFirewalls(cfg, check, firewallCounts{}, nil)
	return errors.Join(err, f.close())
}

// planFirewalls compiles the rules of a configuration.
func planFirewalls(cfg *config.Config, compile waf.Compiler, before firewallCounts, failed func(reason any, stack []byte)) (firewalls, error) {
	f := firewalls{
		listeners: map[string]*waf.Firewall{}, routes: map[string]*waf.Firewall{},
		counts: firewallCounts{map[string]*waf.Counts{}, map[string]*waf.Counts{}},
	}
	if !cfg.HasWAF() {
		return f, nil
	}
	if compile == nil {
		return f, errNoEngine(cfg)
	}
	var errs []error
	add := func(name string, w *config.WAF, to map[string]*waf.Firewall, before, counts map[string]*waf.Counts) {
		if w == nil || w.Mode == config.WAFOff {
			return
		}
		rules, err := f.compile(cfg, w, compile)
		if err != nil {
			errs = append(errs, err)
			return
		}
		if counts[name] = before[name]; counts[name] == nil {
			counts[name] = &waf.Counts{}
		}
		to[name] = waf.New(settingsOf(cfg, w), rules, counts[name], failed)
	}
	for i := range cfg.Listeners {
		add(cfg.Listeners[i].Name, cfg.Listeners[i].WAF, f.listeners, before.listeners, f.counts.listeners)
	}
	for i := range cfg.Routes {
		add(cfg.Routes[i].Name, cfg.Routes[i].WAF, f.routes, before.routes, f.counts.routes)
	}
	return f, f.problems(cfg, errs)
}

// compile returns the rules of a firewall: compiled ones, where another firewall has the same.
func (f *firewalls) compile(cfg *config.Config, w *config.WAF, compile waf.Compiler) (waf.Ruleset, error) {
	for i := range f.sets {
		if s := &f.sets[i]; reflect.DeepEqual(s.cfg, *w) {
			return s.rules, nil
		}
	}
	rules, err := compile(settingsOf(cfg, w))
	if err != nil {
		return nil, err
	}
	f.sets = append(f.sets, firewall{*w, rules})
	return rules, nil
}

func settingsOf(cfg *config.Config, w *config.WAF) waf.Settings {
	s := waf.Settings{Content: w.BodyBytes, Responses: w.Responses, Timeout: w.Timeout}
	if w.Mode == config.WAFPrevent {
		s.Mode, s.Reject = waf.Prevent, w.Excess == config.WAFReject
	}
	for _, r := range w.Exclude {
		s.Without = append(s.Without, waf.Range(r))
	}
	for _, name := range w.Rules {
		s.Files = append(s.Files, waf.File{Name: name, Path: cfg.Beside(name)})
	}
	return s
}

// errNoEngine reports rules in a program that cannot evaluate them: it must not serve as if it did.
func errNoEngine(cfg *config.Config) error {
	var list []config.Problem
	note := func(w *config.WAF) {
		if w == nil || len(w.Rules) == 0 {
			return
		}
		p := cfg.InspectionPlace(w.Rules[0])
		p.Message, p.Hint = "waf: this program has no web application firewall", "the program millrace-waf has one (`make build-waf`), or leave waf out"
		list = append(list, p)
	}
	for i := range cfg.Listeners {
		note(cfg.Listeners[i].WAF)
	}
	for i := range cfg.Routes {
		note(cfg.Routes[i].WAF)
	}
	return &config.Error{Problems: list, ShowAll: showAll}
}

// showAll is the command that shows all problems where an error's text has the first.
const showAll = "millrace gateway check --all"

// problems returns errors of rules as those of the configuration, each once.
func (f *firewalls) problems(cfg *config.Config, errs []error) error {
	var list []config.Problem
	var each func(err error)
	each = func(err error) {
		if j, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range j.Unwrap() {
				each(one)
			}
			return
		}
		var e *waf.FileError
		if !errors.As(err, &e) {
			e = &waf.FileError{Message: err.Error()}
		}
		if p := problemOf(cfg, e); !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	for _, err := range errs {
		each(err)
	}
	if len(list) == 0 {
		return nil
	}
	return &config.Error{Problems: list, ShowAll: showAll}
}

// problemOf returns an error of rules at its place: in their file, or where the configuration names it.
func problemOf(cfg *config.Config, e *waf.FileError) config.Problem {
	if e.Path != "" && e.Line > 0 {
		indent := len(e.Source) - len(strings.TrimLeft(e.Source, " \t"))
		return config.Problem{File: e.Path, Line: e.Line, Column: 1 + indent, Source: e.Source, Message: e.Message, Hint: e.Hint}
	}
	p := cfg.InspectionPlace(e.File.Name)
	p.Message, p.Hint = fmt.Sprintf("waf: %s: %s", e.File.Name, e.Message), e.Hint
	if e.Path != "" && filepath.Base(e.Path) != filepath.Base(e.File.Name) {
		p.Message = fmt.Sprintf("waf: %s: %s", e.Path, e.Message)
	}
	return p
}

// logPanic returns a function that logs a panic of the engine of firewalls.
func logPanic(log *slog.Logger) func(reason any, stack []byte) {
	return func(reason any, stack []byte) {
		log.Error("waf", "panic", fmt.Sprint(reason), "stack", string(stack))
	}
}

// of returns the firewall of a route's requests at a listener, nil for none.
func (f *firewalls) of(l *config.Listener, r *config.Route) *waf.Firewall {
	switch w, ofRoute := l.WAFOf(r); {
	case w == nil:
		return nil
	case ofRoute:
		return f.routes[r.Name]
	}
	return f.listeners[l.Name]
}

// close frees the rules.
func (f *firewalls) close() error {
	var errs []error
	for i := range f.sets {
		errs = append(errs, f.sets[i].rules.Close())
	}
	return errors.Join(errs...)
}

// write writes the counters.
func (c *firewallCounts) write(w *metrics.Writer) {
	for label, all := range map[string]map[string]*waf.Counts{"listener": c.listeners, "route": c.routes} {
		for i, name := range slices.Sorted(maps.Keys(all)) {
			if wanted(&w.Selection, i, name) {
				writeFirewall(w, metrics.Label{Name: "part", Value: label}, metrics.Label{Name: "name", Value: name}, all[name].Sums())
			}
		}
	}
}

func writeFirewall(w *metrics.Writer, part, name metrics.Label, s waf.Sums) {
	w.Counter("millrace_http_waf_requests_total", "Requests that rules of a firewall have evaluated.", s.Requests, part, name)
	for _, r := range []struct {
		result string
		n      uint64
	}{{"denied", s.Denied}, {"excess", s.Excess}, {"overload", s.Overload}, {"timeout", s.Timeouts}, {"failure", s.Panics}} {
		w.Counter("millrace_http_waf_results_total", "Messages that a firewall did not let pass, or would not, by reason: a rule, more content than rules see, or the want of a verdict.", r.n, part, name, metrics.Label{Name: "result", Value: r.result})
	}
	const help = "Messages that a rule of a firewall has matched, by its ID."
	for _, r := range s.Rules {
		w.Counter("millrace_http_waf_matches_total", help, r.N, part, name, metrics.Label{Name: "rule", Value: fmt.Sprint(r.ID)})
	}
	if s.OtherRules > 0 {
		w.Counter("millrace_http_waf_matches_total", help, s.OtherRules, part, name, metrics.Label{Name: "rule", Value: "other"})
	}
}
