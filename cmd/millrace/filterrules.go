package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/app/replay"
	"github.com/millrace/millrace/internal/app/rulefile"
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
	fl.StringArrayVar(&f.set, "set", nil, "set a variable of the rules: `NAME=VALUE`")
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

// read parses files of rules, and those that they name.
func (f *ruleFlags) read(paths ...string) (*rulefile.Files, error) {
	cfg, err := f.config(paths[0])
	if err != nil {
		return nil, err
	}
	return rulefile.Read(cfg, paths...)
}

// load reads a file of rules; rules that are wrong or unsupported are an error, unless the flags say otherwise.
func (f *ruleFlags) load(path string) (*rulefile.Files, error) {
	files, err := f.read(path)
	if err != nil {
		return nil, err
	}
	if errs := files.Errors(f.lenient); len(errs) > 0 {
		return nil, coded{fmt.Errorf("%w\n%s; millrace filter check lists all", errs[0], count(len(errs), "error", "errors")), errConfig}
	}
	return files, nil
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
		files, err := f.read(args...)
		if err != nil {
			return err
		}
		r := files.Check()
		if asJSON {
			err = c.json(r)
		} else {
			showRuleCheck(c, r, len(files.Access) > 0, options)
		}
		if err == nil && (r.Wrong > 0 || r.Unsupported > 0 && !f.lenient) {
			return errors.Join(errShown, errConfig)
		}
		return err
	})
	return cmd
}

// showRuleCheck prints errors and counts.
func showRuleCheck(c *console, r *rulefile.Check, access, options bool) {
	for _, e := range r.Errors {
		fmt.Fprintln(c.out, e.Shown)
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
	if access {
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
--separate forgets them between files. The summary goes to standard error.

All cores inspect, each the packets between some of the hosts, and the alerts are those
of one core, but that --cores engines have as many times the memory (256 MiB), and that of
rules with xbits on addresses the order of packets of different hosts is not exact.
Rules that need all packets in one engine (those that add to datasets, and detection
filters that set bits) make it one core; the summary names them. --cores 1 is exact.`

// inspectFlags are the flags of filter inspect.
type inspectFlags struct {
	rules     ruleFlags
	midstream bool
	separate  bool
	quiet     bool
	cores     int
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
	fl.IntVar(&f.cores, "cores", 0, "cores that inspect (default: all)")
	fl.Lookup("cores").DefValue = ""
	cmd.RunE = command(func(ctx context.Context, args []string) error { return runInspect(ctx, c, &f, args[0], args[1:]) })
	return cmd
}

func runInspect(ctx context.Context, c *console, f *inspectFlags, rules string, captures []string) error {
	if f.cores < 0 {
		return usage("--cores %d: say 0 for all, or more", f.cores)
	}
	began := time.Now()
	files, err := f.rules.load(rules)
	if err != nil {
		return err
	}
	r, err := files.Compile()
	if err != nil {
		return err
	}
	loaded := time.Since(began)
	out := bufio.NewWriterSize(c.out, 64<<10)
	s := &replay.Inspection{Rules: r, Config: inspect.Config{Midstream: f.midstream}, Separate: f.separate, Cores: cmp.Or(f.cores, runtime.GOMAXPROCS(0))}
	if together := r.NeedOneEngine(); len(together) > 0 && s.Cores > 1 {
		s.Cores = 1
		if !f.quiet {
			fmt.Fprintf(c.err, "one core inspects: %s, the first is %d:%d\n", count(len(together), "rule needs all packets in one engine", "rules need all packets in one engine"), together[0].GID, together[0].SID)
		}
	}
	began = time.Now()
	err = errors.Join(s.Run(ctx, out, captures), out.Flush())
	if !f.quiet {
		showInspection(c, s, loaded, time.Since(began))
	}
	return err
}

// showInspection prints the summary of filter inspect.
func showInspection(c *console, s *replay.Inspection, loaded, took time.Duration) {
	all, unfiltered := s.Rules.Len()
	t := &s.Stats
	fmt.Fprintf(c.err, "%s (%d without a content to search for) in %v; %s, %s, %s in %v: %s\n", count(all, "rule", "rules"), unfiltered,
		rounded(loaded), count(int(t.Packets), "packet", "packets"), count(int(t.Bytes), "byte", "bytes"), count(int(t.Flows), "flow", "flows"),
		rounded(took), count(s.Alerts, "alert", "alerts"))
	fmt.Fprintf(c.err, "rules evaluated %d times, %s done again for their matches, %s in streams, %s kept back by thresholds, %s given up\n",
		t.Evaluated, count(int(t.Overflows), "scan", "scans"), count(int(t.Gaps), "gap", "gaps"), count(int(t.Suppressed), "alert", "alerts"),
		count(int(t.GaveUp), "evaluation", "evaluations"))
}

// rounded returns a time with three digits or so, however short it is.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
