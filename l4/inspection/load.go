package inspection

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/filter/expr"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/sysnames"
)

// Check reads and compiles the rules of a configuration, and returns every error in them as a *config.Error.
func Check(cfg *config.Config) error {
	l := loader{cfg: cfg}
	l.load(nil)
	return l.err()
}

// loader reads the files of a configuration and collects their errors.
type loader struct {
	cfg      *config.Config
	vars     *signature.Config
	problems []config.Problem
	texts    map[string]string
}

func (l *loader) err() error {
	if len(l.problems) == 0 {
		return nil
	}
	return &config.Error{Problems: l.problems, ShowAll: "millrace gateway check --all"}
}

// load compiles the policies, in the order of the configuration. before has the rules that each follows, by name.
func (l *loader) load(before map[string]compiled) []*policy {
	l.texts = map[string]string{}
	l.readVariables()
	var list []*policy
	for i := range l.cfg.Inspection.Policies {
		list = append(list, l.policy(&l.cfg.Inspection.Policies[i], before[l.cfg.Inspection.Policies[i].Name]))
	}
	return list
}

// readVariables reads what rules refer to.
func (l *loader) readVariables() {
	c := &l.cfg.Inspection
	l.vars = &signature.Config{Read: func(rules, name string) (string, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(rules), name)
		}
		return l.readPath(name)
	}}
	if c.VariablesFile != "" {
		if text, ok := l.read(c.VariablesFile, "the file of variables"); ok {
			l.fail(l.vars.ParseVars(l.cfg.Beside(c.VariablesFile), text))
		}
	}
	for _, s := range c.Variables {
		if err := l.vars.Set(s); err != nil {
			l.wrong(s, "inspection.variables: "+err.Error())
		}
	}
	path := c.Classification
	if path == "" {
		path = l.classesBeside()
	}
	if path == "" {
		return
	}
	if text, ok := l.read(path, "the file of classes"); ok {
		classes, err := signature.ParseClasses(l.cfg.Beside(path), text)
		l.vars.Classes = classes
		l.fail(err)
	}
}

// classesBeside returns the classification.config beside the first file of rules, "" where there is none.
func (l *loader) classesBeside() string {
	i := slices.IndexFunc(l.cfg.Inspection.Policies, func(p config.InspectionPolicy) bool { return len(p.Rules) > 0 })
	if i < 0 {
		return ""
	}
	path := filepath.Join(filepath.Dir(l.cfg.Inspection.Policies[i].Rules[0]), "classification.config")
	if _, err := os.Stat(l.cfg.Beside(path)); err != nil {
		return ""
	}
	return path
}

// maxRuleText bounds a file of rules.
const maxRuleText = 256 << 20

func (l *loader) read(name, what string) (text string, ok bool) {
	text, err := l.readPath(l.cfg.Beside(name))
	if err != nil {
		l.wrong(name, "inspection: "+what+" cannot be read: "+err.Error())
	}
	return text, err == nil
}

// readPath reads a file once.
func (l *loader) readPath(path string) (string, error) {
	if text, ok := l.texts[path]; ok {
		return text, nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("%s: not a regular file", path)
	case err == nil && info.Size() > maxRuleText:
		err = fmt.Errorf("%s: larger than %d bytes", path, maxRuleText)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return "", err
	}
	l.texts[path] = string(b)
	return l.texts[path], nil
}

// policy reads and compiles one policy.
func (l *loader) policy(c *config.InspectionPolicy, before compiled) *policy {
	p := &policy{
		name: c.Name, prevent: c.Mode == config.InspectionPrevent, skipped: map[string]int{},
		overlaps: c.Overlaps == config.OverloadDrop, strip: c.Urgent != config.UrgentDrop, failOpen: l.cfg.Inspection.Overload == config.OverloadPass,
	}
	for _, name := range c.Rules {
		p.all = append(p.all, l.rules(c, p, name)...)
	}
	l.compile(c, p, before)
	p.access = l.access(c)
	p.capture = l.capture(c)
	return p
}

// compile compiles the rules of a policy: for packets, where it is for services, and for requests where it is for listeners.
func (l *loader) compile(c *config.InspectionPolicy, p *policy, before compiled) {
	var err error
	ofPackets := p.all
	if p.packets = c.OfPackets(); !p.packets {
		ofPackets = nil
	}
	if p.rules, err = inspect.CompileNext(ofPackets, before.packets); err != nil {
		l.fail(err)
	}
	if c.OfRequests() {
		if err = p.ofRequests(p.all, before.requests); err != nil && !p.packets { // or it was reported
			l.fail(err)
		}
	}
}

// rules reads a file of inspection rules.
func (l *loader) rules(c *config.InspectionPolicy, p *policy, name string) []*signature.Rule {
	text, ok := l.read(name, "the file of rules")
	if !ok {
		return nil
	}
	f := signature.Parse(l.cfg.Beside(name), text, l.vars)
	from := len(l.problems)
	for _, e := range f.Errors {
		l.fail(e)
	}
	for option, n := range f.Missing {
		p.skipped[option] += n
	}
	if !c.Lenient {
		for _, e := range f.Skipped {
			l.fail(e)
		}
	}
	slices.SortStableFunc(l.problems[from:], func(a, b config.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return f.Rules
}

// capture compiles the expression of a policy, nil without.
func (l *loader) capture(c *config.InspectionPolicy) *expr.Filter {
	if c.Capture == "" {
		return nil
	}
	f, err := expr.Compile(c.Capture, expr.LinkEthernet, expr.Options{Source: expr.FromHost, Names: sysnames.Names()})
	if err != nil {
		l.wrong(c.Capture, "inspection.policies: capture of "+c.Name+": "+err.Error())
		return nil
	}
	return f
}

// wrong notes an error at the place of a value in the configuration.
func (l *loader) wrong(value, message string) {
	p := l.cfg.InspectionPlace(value)
	p.Message = message
	l.problems = append(l.problems, p)
}

// fail notes an error, each of several that are joined with its place.
func (l *loader) fail(err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			l.fail(e)
		}
		return
	}
	var s *signature.Error
	var a *filter.SyntaxError
	var d *inspect.DuplicateError
	p := config.Problem{Message: err.Error()}
	switch {
	case errors.As(err, &s):
		p = config.Problem{File: s.Name, Line: s.Line, Column: characters(s.Source, s.Column), Message: s.Msg, Source: s.Source}
		if s.Option != "" {
			p.Hint = "`lenient: true` leaves out such rules"
		}
	case errors.As(err, &a):
		p = config.Problem{File: a.Name, Line: a.Line, Column: characters(a.Source, a.Column), Message: a.Msg, Source: a.Source}
	case errors.As(err, &d):
		p = config.Problem{
			File: d.Rule.File, Line: d.Rule.Line, Column: 1, Source: d.Rule.Text,
			Message: fmt.Sprintf("sid %d is that of %s:%d too", d.Rule.SID, d.Before.File, d.Before.Line),
		}
	}
	l.problems = append(l.problems, p)
}

// characters returns the column of a line in characters, as config.Problem has it, of one in bytes.
func characters(line string, column int) int {
	return utf8.RuneCountInString(line[:min(column-1, len(line))]) + 1
}
