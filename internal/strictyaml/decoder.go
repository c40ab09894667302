// Package strictyaml reads YAML strictly: every key must be known, every value of its type and in its range. It collects all
// errors of a file, each with its line, its column, the line with a caret under it, and what is allowed. Schemas belong to the
// callers: they walk the nodes with Mapping and List and read the scalars.
//
// Anchors, aliases and merge keys work, within a bound on what they stand for. An error in an aliased value has the place of the
// value, not of the alias.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Decoder walks the nodes of a YAML document and collects errors with their places. It serves one file, and one goroutine.
type Decoder struct {
	Problems []Problem // in the order they were found

	// Example is the file that the hint of an empty file names; "" is none.
	Example string
	// ShowAll is the command that shows all errors where Error.Error leaves some out; "" is none.
	ShowAll string
	// Cause finds what on these lines is the likely cause of the YAML parser's error and returns a hint, or "". The parser often notices it only
	// later, or blames the start of the block, so it gets all lines. May be nil.
	Cause func(lines []string) string

	file  string
	lines []string

	failed    map[placed]bool
	root      *yaml.Node
	nodes     int  // of the file
	visits    int  // of keys and items, those behind aliases each time
	exhausted bool // there were too many visits, and the walk has ended

	describing bool      // see Describe
	forms      []*Schema // that the place which is described accepts
}

// placed identifies a problem, or without a message a place that has one.
type placed struct {
	line, column int
	message      string
}

// New returns a decoder of src; file names it in messages.
func New(file string, src []byte) *Decoder {
	return &Decoder{file: file, lines: strings.Split(string(src), "\n")}
}

// Err returns the errors in the order of the file, as an *Error; nil when there are none.
func (d *Decoder) Err() error {
	if len(d.Problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.Problems, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	return &Error{Problems: d.Problems, ShowAll: d.ShowAll}
}

// Fail records an error at n; nil is no place of the file.
func (d *Decoder) Fail(n *yaml.Node, hint, format string, args ...any) {
	if n == nil {
		n = &yaml.Node{}
	}
	d.FailAt(n.Line, n.Column, hint, fmt.Sprintf(format, args...))
}

// FailAt records an error at a line and a column, both from 1.
func (d *Decoder) FailAt(line, column int, hint, message string) {
	if d.describing {
		return
	}
	p := d.Place(line, column)
	p.Message, p.Hint = message, hint
	at := placed{line, column, message}
	if d.failed[at] {
		return // an error in a value with several aliases is one
	}
	if d.failed == nil {
		d.failed = map[placed]bool{}
	}
	d.failed[at], d.failed[placed{line, column, ""}] = true, true
	d.Problems = append(d.Problems, p)
}

// FailedAt reports whether there is an error at n already, from which others would follow.
func (d *Decoder) FailedAt(n *yaml.Node) bool { return d.failed[placed{n.Line, n.Column, ""}] }

// Place returns a problem at a place of the file, without a message.
func (d *Decoder) Place(line, column int) Problem {
	p := Problem{File: d.file, Line: line, Column: column}
	if 1 <= line && line <= len(d.lines) {
		p.Source = strings.TrimRight(d.lines[line-1], "\r")
	}
	return p
}

// Document returns the root of the one document in src, nil when there is none.
func (d *Decoder) Document(src []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		d.syntax(err)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		d.Fail(&second, "remove the \"---\" and what follows", "a second document")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	d.root, d.nodes = doc.Content[0], countNodes(&doc)
	return d.root
}

var yamlLine = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s+)?line (\d+): `)

// syntax records an error of the YAML parser, which knows only the line, if that.
func (d *Decoder) syntax(err error) {
	if errors.Is(err, io.EOF) {
		d.FailAt(1, 1, d.exampleHint(), "the file is empty")
		return
	}
	line, message := 1, err.Error()
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		d.unknownAlias(m[1])
		return
	}
	column := 1
	if line <= len(d.lines) {
		column += len(leading(d.lines[line-1]))
	}
	d.FailAt(line, column, d.syntaxHint(line), "not YAML: "+strings.TrimPrefix(message, "yaml: "))
}

var unknownAnchor = regexp.MustCompile(`unknown anchor '(.*)' referenced`)

// unknownAlias records an alias without an anchor. The parser names it without a line.
func (d *Decoder) unknownAlias(name string) {
	alias := regexp.MustCompile(`(?:^|[\s,\[{])(\*` + regexp.QuoteMeta(name) + `)(?:$|[\s,\]}])`)
	for i, text := range d.lines {
		if at := alias.FindStringSubmatchIndex(text); at != nil {
			d.FailAt(i+1, utf8.RuneCountInString(text[:at[2]])+1, "define it before its use: &"+name, fmt.Sprintf("there is no anchor %q", name))
			return
		}
	}
	d.FailAt(1, 1, "", fmt.Sprintf("there is no anchor %q", name))
}

// leading returns the white space that a line begins with.
func leading(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

func (d *Decoder) exampleHint() string {
	if d.Example == "" {
		return ""
	}
	return "see " + d.Example
}

// syntaxHint returns the likely cause of an error near a line.
func (d *Decoder) syntaxHint(line int) string {
	switch {
	case 1 <= line && line <= len(d.lines) && strings.Contains(leading(d.lines[line-1]), "\t"):
		return "indent with spaces"
	case d.Cause != nil:
		return d.Cause(d.lines)
	}
	return ""
}
