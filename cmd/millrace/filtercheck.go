package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/filter/signature"
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
}

// RuleError is one error of a rule.
type RuleError struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	SID    uint32 `json:"sid"`
	Option string `json:"option"`
	Text   string `json:"text"`
}

const filterCheckLong = `Read inspection rules in Suricata's syntax, report every error with its line and
column, and count the options. A rule that uses an option that Millrace does not
implement is reported and not loaded: without one of its conditions it would
match other packets. The exit code is then 3, unless --lenient is given.

Variables like $HOME_NET have the values of Suricata's configuration, those of
--vars FILE and of --set NAME=VALUE.

--json prints one object:
  schema       1
  files, active, disabled, loaded, wrong, unsupported   how many files and rules
  options      how many active rules use a keyword, by keyword
  missing      unsupported options, with how many rules each keeps from loading
  errors       list: file, line, column, sid, option, text; option is "" where the
               rule is wrong`

func newFilterCheck(c *console) *cobra.Command {
	var f ruleFlags
	var asJSON, options bool
	cmd := &cobra.Command{
		Use:     "check FILE...",
		Short:   "Read inspection rules and report what is wrong",
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

// readRules parses files of rules.
func readRules(f *ruleFlags, paths []string) ([]*signature.File, error) {
	cfg, err := f.config(paths[0])
	if err != nil {
		return nil, err
	}
	var files []*signature.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, signature.Parse(path, string(text), cfg))
	}
	return files, nil
}

func newRuleCheck(files []*signature.File) *RuleCheck {
	r := &RuleCheck{Schema: schemaVersion, Files: len(files), Options: map[string]int{}, Missing: map[string]int{}, Errors: []RuleError{}}
	for _, f := range files {
		r.Active += f.Read
		r.Disabled += f.Disabled
		r.Loaded += len(f.Rules)
		for _, list := range [][]*signature.Error{f.Errors, f.Skipped} {
			last := 0
			for _, e := range list {
				r.Errors = append(r.Errors, RuleError{e.Name, e.Line, e.Column, e.SID, e.Option, e.Msg})
				if e.Line != last && e.Option == "" {
					r.Wrong++
				} else if e.Line != last {
					r.Unsupported++
				}
				last = e.Line
			}
		}
		for k, n := range f.Options {
			r.Options[k] += n
		}
		for k, n := range f.Missing {
			r.Missing[k] += n
		}
	}
	return r
}

// showRuleCheck prints errors and counts.
func showRuleCheck(c *console, r *RuleCheck, files []*signature.File, options bool) {
	for _, f := range files {
		for _, e := range f.Errors {
			fmt.Fprintln(c.out, e)
		}
		for _, e := range f.Skipped {
			fmt.Fprintln(c.out, e)
		}
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
	share := 100.0
	if r.Active > 0 {
		share = 100 * float64(r.Loaded) / float64(r.Active)
	}
	fmt.Fprintf(c.out, "%s of %s in %s load (%.1f %%); %d wrong, %d unsupported, %d disabled\n", count(r.Loaded, "rule", "rules"),
		count(r.Active, "active one", "active"), count(r.Files, "file", "files"), share, r.Wrong, r.Unsupported, r.Disabled)
}

// byCount returns the keys of m, those of the highest counts first.
func byCount(m map[string]int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
}
