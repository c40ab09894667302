package filter

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/millrace/millrace/gpukern/acl"
)

// File holds the content of a file of rules and of the files that it names.
type File struct {
	List    *List // never nil, also where there were errors
	Inspect []Text
	Lists   []*PrefixList
	Groups  int // named
}

// Text is inspection rules, in the syntax of Suricata. Lines that are other rules are empty in it, so that its
// lines have the numbers of the file's.
type Text struct {
	Name, Text string
	Line       int // that names the file; 0 for lines of the rules' own file
}

// Open returns the text of a file that rules name. name is as written, behind the folder of the file that names it.
type Open func(name string) (string, error)

// MaxListText is the longest text of a prefix list, in bytes.
const MaxListText = 64 << 20

// maxDepth is the number of files that may name each other.
const maxDepth = 8

// ParseFile reads rules, one on a line, and what they use; what follows a "#" is comment.
//
//	ACTION... [PROTOCOL] [from PLACE] [to PLACE] [name "TEXT"]
//	group NAME MEMBER...
//	list NAME PREFIX... | list NAME file "FILE"
//	include "FILE"
//	inspect "FILE"
//	a rule in the syntax of Suricata
//
//	ACTION    allow | pass | deny | drop | redirect DEVICE | mark N | capture
//	          | rate RATE [burst N] [per source]
//	RATE      a number and pps, kpps, Mpps, bps, kbps, Mbps or Gbps
//	PROTOCOL  tcp | udp | icmp | icmpv6 | sctp | gre | esp | ah | ipip | proto NUMBER
//	PLACE     any | ADDRESS | ADDRESS/LENGTH | group NAME | list NAME, and then perhaps: port PORTS
//	PORTS     N or N-M, or several with commas between them
//	MEMBER    ADDRESS | ADDRESS/LENGTH | group NAME
//
//	group web 198.18.0.10 198.18.0.11 2001:db8::/64
//	list bad file "bad.prefixes"
//	deny from list bad
//	rate 1kpps per source tcp to group web port 80,443
//	deny capture tcp to 198.18.0.0/15 port 22,3389 name "no logins"
//
// name is the text's, for errors. open reads the files that rules name; where it is nil, naming one is an error.
// ParseFile returns every error; the List has the rules that are right.
func ParseFile(name, text string, open Open) (*File, []*SyntaxError) {
	r := &reader{open: open, file: &File{}, groups: map[string][]netip.Prefix{}, lists: map[string]*PrefixList{}}
	r.text(name, text, 0)
	r.file.Groups = len(r.groups)
	l, err := New(r.rules)
	bad := new(acl.RuleError)
	for errors.As(err, &bad) && bad.N <= len(r.rules) {
		u := r.rules[bad.N-1]
		r.wrong = append(r.wrong, &SyntaxError{Name: u.File, Line: u.Line, Column: 1, Source: u.Text, Msg: bad.Reason})
		r.rules = slices.DeleteFunc(r.rules, func(o Rule) bool { return o.File == u.File && o.Line == u.Line })
		l, err = New(r.rules)
	}
	if err != nil {
		r.wrong = append(r.wrong, &SyntaxError{Name: name, Line: 1, Column: 1, Msg: strings.TrimPrefix(err.Error(), "filter: ")})
		l = &List{}
	}
	r.file.List = l
	return r.file, r.wrong
}

// reader reads a file of rules and those that it names.
type reader struct {
	open   Open
	file   *File
	rules  []Rule
	groups map[string][]netip.Prefix
	lists  map[string]*PrefixList
	wrong  []*SyntaxError
}

// text reads the lines of one file.
func (r *reader) text(name, text string, depth int) {
	if len(text) > MaxText {
		r.wrong = append(r.wrong, &SyntaxError{Name: name, Line: 1, Column: 1, Msg: fmt.Sprintf("%d bytes of rules, at most %d are read", len(text), MaxText)})
		return
	}
	if r.binary(name, text, "rules") {
		return
	}
	var inspect strings.Builder // of this file's own lines
	own, goesOn := false, false
	line := 0
	for source := range strings.Lines(text) {
		line++
		source = strings.TrimRight(source, "\r\n")
		if goesOn || isInspection(source) {
			own, goesOn = true, strings.HasSuffix(source, "\\")
			inspect.WriteString(source)
			inspect.WriteByte('\n')
			continue
		}
		inspect.WriteByte('\n')
		code := uncomment(source)
		if strings.TrimSpace(code) == "" {
			continue
		}
		p := &parser{rest: code, size: len(code), groups: r.groups, lists: r.lists}
		if err := r.line(p, name, line, depth); err != nil {
			e := &SyntaxError{Name: name, Line: line, Column: p.at + 1, Source: source, Msg: err.Error()}
			if u := unsupportedError(""); errors.As(err, &u) {
				e.Unsupported = string(u)
			}
			r.wrong = append(r.wrong, e)
		}
	}
	if own {
		r.file.Inspect = append(r.file.Inspect, Text{Name: name, Text: inspect.String()})
	}
}

// isInspection reports whether a line is a rule in the syntax of Suricata: an action, a protocol, addresses with an
// arrow between them, and options in parentheses.
func isInspection(line string) bool {
	head, _, ok := strings.Cut(strings.TrimSpace(line), "(")
	if word, _, _ := strings.Cut(head, " "); word == "alert" || word == "rejectsrc" || word == "rejectdst" || word == "rejectboth" {
		return true
	}
	if !ok || strings.HasPrefix(head, "#") || strings.Contains(head, `"`) {
		return false
	}
	return strings.Contains(head, " -> ") || strings.Contains(head, " <> ") || strings.Contains(head, " => ")
}

// line reads one line.
func (r *reader) line(p *parser, name string, line, depth int) error {
	switch p.peek() {
	case "group":
		return p.group()
	case "list":
		return r.list(p, name)
	case "include":
		return r.include(p, name, depth)
	case "inspect":
		return r.inspect(p, name, line)
	}
	code := strings.Join(strings.Fields(p.rest), " ")
	read, err := p.rule()
	if err == nil && len(r.rules)+len(read) > acl.MaxRules {
		p.at = 0
		return fmt.Errorf("a list has at most %d rules, counting each address and port of a line", acl.MaxRules)
	}
	for _, u := range read {
		u.Text, u.Line, u.File = code, line, name
		r.rules = append(r.rules, u)
	}
	return err
}

// group reads "group NAME MEMBER...".
func (p *parser) group() error {
	p.word()
	name := p.word()
	if !isName(name) {
		return fmt.Errorf("%q cannot name a group: letters, digits, _ . and -", name)
	}
	if _, ok := p.groups[name]; ok {
		return fmt.Errorf("the group %s is there already", name)
	}
	var all []netip.Prefix
	for p.peek() != "" {
		some, err := p.member()
		if err != nil {
			return err
		}
		if all = append(all, some...); len(all) > maxLine {
			return fmt.Errorf("a group has at most %d addresses: use a list", maxLine)
		}
	}
	if len(all) == 0 {
		return errors.New("a group has at least one address")
	}
	p.groups[name] = all
	return nil
}

// member reads an address, a prefix or a group, with or without a comma behind it.
func (p *parser) member() ([]netip.Prefix, error) {
	if p.peek() == "group" {
		return p.groupNamed()
	}
	w := p.word()
	a, err := prefix(strings.TrimSuffix(w, ","))
	if err == nil && a == (netip.Prefix{}) {
		err = errors.New("any is no address of a group or list")
	}
	return []netip.Prefix{a}, err
}

// groupNamed reads "group NAME".
func (p *parser) groupNamed() ([]netip.Prefix, error) {
	p.word()
	name := strings.TrimSuffix(p.word(), ",")
	all, ok := p.groups[name]
	if !ok {
		return nil, fmt.Errorf("no line before defines the group %q%s", name, didYouMean(name, slices.Sorted(maps.Keys(p.groups))...))
	}
	return all, nil
}

// listNamed reads "list NAME".
func (p *parser) listNamed() (*PrefixList, error) {
	p.word()
	name := p.word()
	l, ok := p.lists[name]
	if !ok {
		return nil, fmt.Errorf("no line before defines the list %q%s", name, didYouMean(name, slices.Sorted(maps.Keys(p.lists))...))
	}
	return l, nil
}

// list reads "list NAME file "FILE"" or "list NAME PREFIX...".
func (r *reader) list(p *parser, name string) (err error) {
	p.word()
	list := p.word()
	if !isName(list) {
		return fmt.Errorf("%q cannot name a list: letters, digits, _ . and -", list)
	}
	if r.lists[list] != nil {
		return fmt.Errorf("the list %s is there already", list)
	}
	r.lists[list] = &PrefixList{Name: list} // rules that use it are no errors of their own
	var all []netip.Prefix
	if p.took("file") {
		file, text, err := r.named(p, name, MaxListText)
		if err != nil {
			return err
		}
		all = r.prefixes(file, text)
	} else {
		for p.peek() != "" {
			some, err := p.member()
			if err != nil {
				return err
			}
			all = append(all, some...)
		}
		if len(all) == 0 {
			return errors.New(`a list has prefixes, or file "FILE"`)
		}
	}
	l, err := NewPrefixList(list, all)
	if err != nil {
		return err
	}
	r.lists[list] = l
	r.file.Lists = append(r.file.Lists, l)
	return nil
}

// prefixes reads the text of a prefix list: one on each line.
func (r *reader) prefixes(name, text string) []netip.Prefix {
	if r.binary(name, text, "prefixes") {
		return nil
	}
	all := make([]netip.Prefix, 0, strings.Count(text, "\n")+1)
	line := 0
	for source := range strings.Lines(text) {
		line++
		code, _, _ := strings.Cut(source, "#")
		if code = strings.TrimSpace(code); code == "" {
			continue
		}
		a, err := prefix(code)
		if err == nil && a == (netip.Prefix{}) {
			err = errors.New("any is no address of a group or list")
		}
		if err != nil {
			source = strings.TrimRight(source, "\r\n")
			r.wrong = append(r.wrong, &SyntaxError{Name: name, Line: line, Column: strings.Index(source, code) + 1, Source: source, Msg: err.Error()})
			continue
		}
		all = append(all, a)
	}
	return all
}

// binary reports whether a text that should have some kind of lines is none, and records that as its one error.
func (r *reader) binary(name, text, kind string) bool {
	e := notText(name, text, kind)
	if e != nil {
		r.wrong = append(r.wrong, e)
	}
	return e != nil
}

// include reads "include "FILE"": more rules.
func (r *reader) include(p *parser, name string, depth int) error {
	p.word()
	file, text, err := r.named(p, name, MaxText)
	if err != nil {
		return err
	}
	if depth+1 == maxDepth {
		return fmt.Errorf("files name each other more than %d deep", maxDepth)
	}
	r.text(file, text, depth+1)
	return nil
}

// inspect reads "inspect "FILE"": inspection rules.
func (r *reader) inspect(p *parser, name string, line int) error {
	p.word()
	file, text, err := r.named(p, name, MaxListText)
	if err != nil {
		return err
	}
	r.file.Inspect = append(r.file.Inspect, Text{file, text, line})
	return nil
}

// named reads the name of a file in quotes, to the end of the line, and the file. Names are relative to the folder of
// the file that has them.
func (r *reader) named(p *parser, from string, most int) (name, text string, err error) {
	if name, err = p.quoted(); err != nil {
		return "", "", errors.New("a file's name stands in double quotes")
	}
	at := p.at
	if w := p.word(); w != "" {
		return "", "", fmt.Errorf("%q is one word too many", w)
	}
	p.at = at
	if r.open == nil {
		return "", "", errors.New("no files can be read here")
	}
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(from), name)
	}
	if text, err = r.open(name); err == nil && len(text) > most {
		err = fmt.Errorf("%s has %d bytes, at most %d are read", name, len(text), most)
	}
	return name, text, err
}

// IsFile reports whether a text is one for ParseFile, and not inspection rules alone: a line begins as only such a text's
// do, or none is an inspection rule.
func IsFile(text string) bool {
	inspection, other := false, false
	for source := range strings.Lines(text) {
		if isInspection(source) {
			inspection = true
			continue
		}
		p := &parser{rest: uncomment(strings.TrimRight(source, "\r\n"))}
		w := p.peek()
		if slices.Contains(statements, w) {
			return true
		}
		other = other || w != ""
	}
	return other && !inspection
}

// statements are the words that lines begin with that are no inspection rules.
var statements = append([]string{"group", "list", "include", "inspect"}, actionWords...)
