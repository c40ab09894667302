package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/replay"
	"github.com/millrace/millrace/wire"
)

// ruleFlags say how rules are read.
type ruleFlags struct {
	lenient bool
	vars    string
	set     []string
	classes string
}

func (f *ruleFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.lenient, "lenient", false, "leave out rules with unsupported options")
	fl.StringVar(&f.vars, "vars", "", "suricata.yaml, or its address-groups and port-groups")
	fl.StringArrayVar(&f.set, "set", nil, "variable, `NAME=VALUE`")
	fl.StringVar(&f.classes, "classification", "", "classification.config; by default the one beside the first file")
}

// config reads the files that the flags name.
func (f *ruleFlags) config(first string) (*signature.Config, error) {
	cfg := &signature.Config{}
	if f.vars != "" {
		text, err := os.ReadFile(f.vars)
		if err != nil {
			return nil, err
		}
		if err := cfg.ParseVars(f.vars, string(text)); err != nil {
			return nil, coded{err, errConfig}
		}
	}
	for _, s := range f.set {
		if err := cfg.Set(s); err != nil {
			return nil, usage("--set: %v", err)
		}
	}
	path := f.classes
	if path == "" {
		path = filepath.Join(filepath.Dir(first), "classification.config")
		if _, err := os.Stat(path); err != nil {
			return cfg, nil
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if cfg.Classes, err = signature.ParseClasses(path, string(text)); err != nil {
		return nil, coded{err, errConfig}
	}
	return cfg, nil
}

// RuleCheck is what filter check prints as JSON.
type RuleCheck struct {
	Schema      int            `json:"schema"`
	Files       int            `json:"files"`
	Active      int            `json:"active"`
	Disabled    int            `json:"disabled"`
	Loaded      int            `json:"loaded"`
	Wrong       int            `json:"wrong"`
	Unsupported int            `json:"unsupported"`
	Options     map[string]int `json:"options"`
	Missing     map[string]int `json:"missing"`
	Errors      []RuleError    `json:"errors"`
	Rules       int            `json:"rules"`
	Groups      int            `json:"groups"`
	Lists       []RuleList     `json:"lists"`
}

// RuleList is a prefix list.
type RuleList struct {
	Name     string `json:"name"`
	Prefixes int    `json:"prefixes"`
	Bytes    int    `json:"bytes"`
}

// RuleError is one error of a rule.
type RuleError struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	SID    uint32 `json:"sid"`
	Option string `json:"option"`
	Text   string `json:"text"`

	shown error // the same with the line, and the column pointed at
}

const filterCheckLong = `Read rules, report every error with its line and column, and count the options of
inspection rules. A file has inspection rules, in Suricata's syntax, or access rules,
as replay --rules has them (docs/rules.md), with inspection rules among them, or the
names of files with either. An inspection rule with an option that Millrace does not
implement is reported and not loaded: without one of its conditions it would
match other packets. The exit code is then 3, unless --lenient is given.

Variables like $HOME_NET have the values of Suricata's configuration, those of
--vars FILE and of --set NAME=VALUE.

--json prints one object:
  schema       1
  files        how many
  active, disabled, loaded   how many inspection rules
  wrong, unsupported         how many lines of both kinds are wrong, or use what is
               not supported; a rule on several lines counts once, whatever the
               number of its errors
  options      how many active rules use a keyword, by keyword
  missing      unsupported options, with how many rules each keeps from loading
  errors       list: file, line, column, sid, option, text; option is "" where the
               rule is wrong
  rules, groups   how many access rules, one for each address and port, and groups of
               addresses
  lists        prefix lists: name, prefixes, bytes (of memory)`

func newFilterCheck(c *console) *cobra.Command {
	var f ruleFlags
	var asJSON, options bool
	cmd := &cobra.Command{
		Use:     "check FILE...",
		Short:   "Read rules and report what is wrong",
		Long:    filterCheckLong,
		Example: "  millrace filter check --options local.rules\n  millrace filter check --lenient --set 'HOME_NET=[192.0.2.0/24]' rules/*.rules",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("no file of rules; name one or more")
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&options, "options", false, "list the options that the rules use")
	cmd.RunE = command(func(_ context.Context, args []string) error {
		files, err := readRules(&f, args)
		if err != nil {
			return err
		}
		r := newRuleCheck(files)
		r.Files = len(args)
		if asJSON {
			err = c.json(r)
		} else {
			showRuleCheck(c, r, files, options)
		}
		if err == nil && (r.Wrong > 0 || r.Unsupported > 0 && !f.lenient) {
			return errors.Join(errShown, errConfig)
		}
		return err
	})
	return cmd
}

// ruleFiles is what files of rules have.
type ruleFiles struct {
	inspect []*signature.File
	files   []*filter.File
	wrong   []*filter.SyntaxError // of files
}

// readRules parses files of rules, and those that they name.
func readRules(f *ruleFlags, paths []string) (*ruleFiles, error) {
	cfg, err := f.config(paths[0])
	if err != nil {
		return nil, err
	}
	all := &ruleFiles{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if !filter.IsFile(string(text)) {
			all.inspect = append(all.inspect, signature.Parse(path, string(text), cfg))
			continue
		}
		file, wrong := filter.ParseFile(path, string(text), openRules)
		all.files, all.wrong = append(all.files, file), append(all.wrong, wrong...)
		for _, t := range file.Inspect {
			all.inspect = append(all.inspect, signature.Parse(t.Name, t.Text, cfg))
		}
	}
	return all, nil
}

func newRuleCheck(files *ruleFiles) *RuleCheck {
	r := &RuleCheck{Schema: schemaVersion, Options: map[string]int{}, Missing: map[string]int{}, Errors: []RuleError{}, Lists: []RuleList{}}
	for _, f := range files.files {
		r.Rules += len(f.List.Rules())
		r.Groups += f.Groups
		for _, l := range f.Lists {
			r.Lists = append(r.Lists, RuleList{l.Name, l.Len(), l.Size()})
		}
	}
	for _, e := range files.wrong {
		r.Errors = append(r.Errors, RuleError{File: e.Name, Line: e.Line, Column: e.Column, Option: e.Unsupported, Text: e.Msg, shown: e})
		if e.Unsupported == "" {
			r.Wrong++
			continue
		}
		r.Unsupported++
		r.Missing[e.Unsupported]++
	}
	for _, f := range files.inspect {
		r.Active += f.Read
		r.Disabled += f.Disabled
		r.Loaded += len(f.Rules)
		r.Wrong += f.Wrong
		r.Unsupported += f.Unsupported
		for _, e := range slices.Concat(f.Errors, f.Skipped) {
			r.Errors = append(r.Errors, RuleError{e.Name, e.Line, e.Column, e.SID, e.Option, e.Msg, e})
		}
		for k, n := range f.Options {
			r.Options[k] += n
		}
		for k, n := range f.Missing {
			r.Missing[k] += n
		}
	}
	sortByLine(r.Errors)
	return r
}

// sortByLine puts the errors of each file in the order of its lines, whichever kind of rule they are of.
func sortByLine(list []RuleError) {
	files := map[string]int{} // in the order of their first errors
	for _, e := range list {
		if _, ok := files[e.File]; !ok {
			files[e.File] = len(files)
		}
	}
	slices.SortStableFunc(list, func(a, b RuleError) int {
		return cmp.Or(cmp.Compare(files[a.File], files[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// showRuleCheck prints errors and counts.
func showRuleCheck(c *console, r *RuleCheck, files *ruleFiles, options bool) {
	for _, e := range r.Errors {
		fmt.Fprintln(c.out, e.shown)
	}
	if options {
		fmt.Fprintln(c.out, "options, by the number of rules:")
		for _, k := range byCount(r.Options) {
			fmt.Fprintf(c.out, "  %7d  %s\n", r.Options[k], k)
		}
	}
	if len(r.Missing) > 0 {
		fmt.Fprintln(c.out, "not supported, with the rules that are not loaded for it:")
		for _, k := range byCount(r.Missing) {
			fmt.Fprintf(c.out, "  %7d  %s\n", r.Missing[k], k)
		}
	}
	for _, l := range r.Lists {
		fmt.Fprintf(c.out, "list %s: %s, %s bytes of memory\n", l.Name, count(l.Prefixes, "prefix", "prefixes"), group(uint64(l.Bytes)))
	}
	if len(files.files) > 0 {
		c.printf("%s, %s\n", count(r.Rules, "access rule", "access rules"), count(r.Groups, "group", "groups"))
	}
	if r.Active > 0 || r.Disabled > 0 {
		share := 100.0
		if r.Active > 0 {
			share = 100 * float64(r.Loaded) / float64(r.Active)
		}
		c.printf("%d of %s load (%.1f %%), %d disabled\n", r.Loaded, count(r.Active, "inspection rule", "inspection rules"), share, r.Disabled)
	}
	where := count(r.Files, "file", "files")
	if len(r.Errors) == 0 {
		c.printf("%s, no errors\n", where)
		return
	}
	c.printf("%s, %s: %s wrong, %d not supported\n", where, count(len(r.Errors), "error", "errors"), count(r.Wrong, "line is", "lines are"), r.Unsupported)
}

// byCount returns the keys of m, those of the highest counts first.
func byCount(m map[string]int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
}

// RuleAlert is one line of filter inspect, with the keys of Suricata's EVE output.
type RuleAlert struct {
	Schema    int        `json:"schema"`
	Timestamp string     `json:"timestamp"`
	FlowID    uint64     `json:"flow_id"`
	Capture   string     `json:"capture"`
	Packet    uint64     `json:"pcap_cnt"`
	Event     string     `json:"event_type"`
	Src       netip.Addr `json:"src_ip"`
	SrcPort   uint16     `json:"src_port"`
	Dst       netip.Addr `json:"dest_ip"`
	DstPort   uint16     `json:"dest_port"`
	Proto     string     `json:"proto"`
	App       string     `json:"app_proto"`
	Direction string     `json:"direction"`
	Tunnels   int        `json:"tunnels"`
	Anomaly   string     `json:"anomaly"`
	Alert     *AlertRule `json:"alert"`
	Payload   string     `json:"payload_printable"`
}

// AlertRule says which rule an alert is of.
type AlertRule struct {
	Action   string `json:"action"`
	GID      uint32 `json:"gid"`
	SID      uint32 `json:"signature_id"`
	Rev      uint32 `json:"rev"`
	Msg      string `json:"signature"`
	Class    string `json:"category"`
	Severity int    `json:"severity"`
}

const filterInspectLong = `Inspect captures by rules in Suricata's syntax and print one JSON object per
alert, in the order of the packets:

  schema      1
  timestamp, flow_id, capture, pcap_cnt (the packet in that file; 0 at the end of a
  flow), event_type (alert or anomaly), src_ip, src_port, dest_ip, dest_port, proto,
  app_proto, direction, tunnels (around the packet), anomaly, payload_printable (80 bytes at most)
  alert       null, or action, gid, signature_id, rev, signature, category, severity

Streams of TCP and fragments of IP are put together, and VLAN tags, PPPoE, MPLS and
tunnels (IP in IP, GRE, VXLAN, GENEVE, Teredo, GTP-U) are looked into. Bytes of
overlapping segments or fragments that differ are an anomaly.

Files are one sequence of packets: flows and thresholds go on from one to the next.
--separate forgets them between files. The summary goes to standard error.`

// inspectFlags are the flags of filter inspect.
type inspectFlags struct {
	rules     ruleFlags
	midstream bool
	separate  bool
	quiet     bool
}

func newFilterInspect(c *console) *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:     "inspect RULES FILE...",
		Short:   "Inspect captures by rules",
		Long:    filterInspectLong,
		Example: "  millrace filter inspect local.rules trace.pcap\n  millrace filter inspect --lenient --set HOME_NET=192.0.2.0/24 emerging.rules *.pcap",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("name a file of rules and captures")
			}
			return nil
		},
	}
	f.rules.add(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.midstream, "midstream", false, "inspect TCP flows whose handshake was not captured")
	fl.BoolVar(&f.separate, "separate", false, "forget flows and thresholds between files")
	fl.BoolVar(&f.quiet, "quiet", false, "print no summary")
	cmd.RunE = command(func(ctx context.Context, args []string) error { return runInspect(ctx, c, &f, args[0], args[1:]) })
	return cmd
}

// loadRules reads and compiles rules; those that are wrong or unsupported are an error, unless the flags say
// otherwise.
func loadRules(f *ruleFlags, path string) (*inspect.Rules, error) {
	files, err := readRules(f, []string{path})
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range files.wrong {
		if e.Unsupported == "" || !f.lenient {
			errs = append(errs, e)
		}
	}
	var all []*signature.Rule
	for _, file := range files.inspect {
		for _, e := range file.Errors {
			errs = append(errs, e)
		}
		for _, e := range file.Skipped {
			if !f.lenient {
				errs = append(errs, e)
			}
		}
		all = append(all, file.Rules...)
	}
	if len(errs) > 0 {
		return nil, coded{fmt.Errorf("%w\n%s; millrace filter check lists all", errs[0], count(len(errs), "error", "errors")), errConfig}
	}
	return inspect.Compile(all)
}

func runInspect(ctx context.Context, c *console, f *inspectFlags, rules string, captures []string) error {
	began := time.Now()
	r, err := loadRules(&f.rules, rules)
	if err != nil {
		return err
	}
	loaded := time.Since(began)
	out := bufio.NewWriterSize(c.out, 64<<10)
	s := &inspectRun{out: json.NewEncoder(out), rules: r, cfg: inspect.Config{Midstream: f.midstream}}
	s.out.SetEscapeHTML(false)
	began = time.Now()
	for _, path := range captures {
		if s.engine == nil || f.separate {
			s.restart()
		}
		if e := s.file(ctx, path); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", path, e))
		}
	}
	s.flush()
	err = errors.Join(err, s.err, out.Flush())
	if !f.quiet {
		s.summary(c, loaded, time.Since(began))
	}
	return err
}

// inspectRun is one run over captures.
type inspectRun struct {
	out    *json.Encoder
	rules  *inspect.Rules
	cfg    inspect.Config
	engine *inspect.Engine
	total  inspect.Stats
	alerts int
	path   string
	before uint64 // packets of this engine before this file
	err    error
}

// restart begins with an engine that knows no flows.
func (s *inspectRun) restart() {
	s.flush()
	s.engine = inspect.New(s.rules, s.cfg, s.alert)
	s.before = 0
}

// flush ends the flows and counts what there was.
func (s *inspectRun) flush() {
	if s.engine == nil {
		return
	}
	s.engine.Flush()
	t := s.engine.Stats()
	s.total.Packets += t.Packets
	s.total.Bytes += t.Bytes
	s.total.Flows += t.Flows
	s.total.Gaps += t.Gaps
	s.total.Overflows += t.Overflows
	s.total.Suppressed += t.Suppressed
	s.total.GaveUp += t.GaveUp
	s.total.Evaluated += t.Evaluated
	s.engine = nil
}

// file inspects the packets of one capture.
func (s *inspectRun) file(ctx context.Context, path string) error {
	in, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	s.path, s.before = path, s.engine.Stats().Packets
	var frame []byte
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		rec, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		b, err := capture.ToEthernet(rec.LinkType, rec.Data, frame)
		if err != nil {
			s.before-- // packets are counted as in the file
			continue
		}
		if rec.LinkType != capture.LinkTypeEthernet {
			frame = b
		}
		s.engine.Packet(rec.Time, b)
	}
}

// alert writes one alert.
func (s *inspectRun) alert(a *inspect.Alert) {
	s.alerts++
	j := RuleAlert{Schema: schemaVersion, Timestamp: time.Unix(0, a.Time).UTC().Format(replay.EVETime), FlowID: a.Flow, Capture: s.path,
		Event: "anomaly", Src: a.Src, SrcPort: a.SrcPort, Dst: a.Dst, DstPort: a.DstPort, Proto: replay.EVETransport(wire.ProtoName(a.Proto)), App: a.App.String(), Tunnels: a.Tunnel,
		Anomaly: a.Anomaly.String(), Payload: printable(a.Payload)}
	if a.Packet > 0 {
		j.Packet = a.Packet - s.before
	}
	switch a.Dir {
	case signature.ToServer:
		j.Direction = "to_server"
	case signature.ToClient:
		j.Direction = "to_client"
	}
	if r := a.Rule; r != nil {
		j.Event = "alert"
		j.Alert = &AlertRule{r.Action.String(), r.GID, r.SID, r.Rev, r.Msg, r.Class, r.Priority}
	}
	if err := s.out.Encode(&j); err != nil && s.err == nil {
		s.err = err
	}
}

func (s *inspectRun) summary(c *console, loaded, took time.Duration) {
	all, unfiltered := s.rules.Len()
	fmt.Fprintf(c.err, "%s (%d without a content to search for) in %v; %s, %s, %s in %v: %s\n", count(all, "rule", "rules"), unfiltered,
		rounded(loaded), count(int(s.total.Packets), "packet", "packets"), count(int(s.total.Bytes), "byte", "bytes"), count(int(s.total.Flows), "flow", "flows"),
		rounded(took), count(s.alerts, "alert", "alerts"))
	fmt.Fprintf(c.err, "rules evaluated %d times, %s done again for their matches, %s in streams, %s kept back by thresholds, %s given up\n",
		s.total.Evaluated, count(int(s.total.Overflows), "scan", "scans"), count(int(s.total.Gaps), "gap", "gaps"), count(int(s.total.Suppressed), "alert", "alerts"),
		count(int(s.total.GaveUp), "evaluation", "evaluations"))
}

// rounded returns a time with three digits or so, however short it is.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// printable returns at most 80 bytes, with dots for those that are not printable ASCII.
func printable(b []byte) string {
	b = b[:min(len(b), 80)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(string(b), "."))
}
