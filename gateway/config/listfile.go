package config

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/regfile"
)

// Limits of list files, so that a wrong one cannot take the machine's memory.
const (
	maxListed       = 1 << 24 // entries of one configuration
	maxListLine     = 4096    // bytes
	maxListProblems = 50
)

// listReader reads the lists of a configuration and collects errors with their places.
type listReader struct {
	c        *Config
	files    []string            // by number; 0 is the configuration
	read     map[string][]listed // entries of files that have been read
	entries  int
	problems []Problem
	more     int // problems beyond maxListProblems
}

// Lists returns the compiled lists. ReadLists has read them.
func (c *Config) Lists() *SourceTables { return c.lists }

// ReadLists reads keys and certificates, and reads and compiles the lists of c, once. Mistakes in them are a *Error.
func (c *Config) ReadLists() error {
	if c.lists != nil {
		return nil
	}
	wrong := append(c.readKeys(), c.readFiles()...)
	r := &listReader{c: c, files: []string{c.file}, read: map[string][]listed{}}
	t := &SourceTables{Services: map[string]*SourceTable{}, Listeners: map[string]*SourceTable{}, Routes: map[string]*SourceTable{}}
	made := map[string]*SourceTable{} // parts with equal lists share a table
	table := func(s *Sources) *SourceTable {
		if len(s.Allow) == 0 && len(s.Deny) == 0 && s.Default != "deny" {
			return nil
		}
		key := fmt.Sprint(*s)
		if made[key] == nil {
			made[key] = r.compile(r.all(s), s.Default == "deny")
		}
		return made[key]
	}
	t.All = table(&c.Sources)
	for i := range c.Services {
		if one := table(&c.Services[i].Sources); one != nil {
			t.Services[c.Services[i].Name] = one
		}
	}
	for i := range c.Listeners {
		if one := table(&c.Listeners[i].Sources); one != nil {
			t.Listeners[c.Listeners[i].Name] = one
		}
	}
	for i := range c.Routes {
		if one := table(&c.Routes[i].Sources); one != nil {
			t.Routes[c.Routes[i].Name] = one
		}
	}
	lists := r.defence(c.Defence)
	if r.problems = append(wrong, r.problems...); len(r.problems) > 0 {
		return &Error{Problems: r.problems, More: r.more, ShowAll: showAll}
	}
	c.lists, c.defence = t, lists
	return nil
}

// JoinErrors returns one *Error with the problems of two errors. An error that is no *Error is returned alone.
func JoinErrors(a, b error) error {
	var first, second *Error
	switch {
	case a == nil || !errors.As(b, &second):
		return cmp.Or(a, b)
	case !errors.As(a, &first):
		return a
	}
	return &Error{Problems: slices.Concat(first.Problems, second.Problems), More: first.More + second.More, ShowAll: showAll}
}

// all returns the entries of all lists of s, marked with what they say.
func (r *listReader) all(s *Sources) []listed {
	n := len(s.Allow) + len(s.Deny)
	for _, l := range slices.Concat(s.Allow, s.Deny) {
		n += len(r.file(l.File))
	}
	all := make([]listed, 0, n)
	add := func(lists []SourceList, kind uint8) {
		from := len(all)
		for _, l := range lists {
			if l.File == "" {
				all = append(all, newListed(l.Prefix))
			}
			all = append(all, r.file(l.File)...)
		}
		for i := range all[from:] {
			all[from+i].kind |= kind
		}
	}
	add(s.Allow, SourceAllow)
	add(s.Deny, SourceDeny)
	return all
}

// file returns the entries of a file, none for the empty name. Where it cannot be read the line of the configuration that names
// it is wrong.
func (r *listReader) file(name string) []listed {
	if list, ok := r.read[name]; ok || name == "" {
		return list
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.c.file), name)
	}
	r.files = append(r.files, path)
	list, err := r.open(path)
	if err != nil {
		p := r.c.listAt[name]
		p.Message = "the list cannot be read: " + err.Error()
		r.problem(p)
	}
	r.read[name] = list
	return list
}

func (r *listReader) open(path string) ([]listed, error) {
	f, err := regfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return r.lines(f)
}

// lines reads one prefix from each line of the newest file; # starts a comment.
func (r *listReader) lines(src io.Reader) (list []listed, err error) {
	in := bufio.NewReaderSize(src, maxListLine)
	for number := uint32(1); ; number++ {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return list, fmt.Errorf("line %d of %s has more than %d bytes", number, r.files[len(r.files)-1], maxListLine)
		}
		if err != nil && err != io.EOF {
			return list, err
		}
		if one, ok := r.line(string(line), number); ok {
			list = append(list, one)
			if r.entries++; r.entries > maxListed {
				return nil, fmt.Errorf("more than %d entries", maxListed)
			}
		}
		if err == io.EOF {
			return list, nil
		}
	}
}

// line reads one line; false when it has no prefix, or a wrong one.
func (r *listReader) line(line string, number uint32) (listed, bool) {
	text, _, _ := strings.Cut(line, "#")
	word := strings.TrimSpace(text)
	if word == "" {
		return listed{}, false
	}
	at := listed{line: number, file: uint16(len(r.files) - 1)}
	p, err := parsePrefix(word)
	wrong, hint := "", ""
	switch {
	case err != nil:
		wrong, hint = fmt.Sprintf("not a prefix: %q", excerptWord(word)), "one on each line, such as 198.18.0.0/24, 2001:db8::/64 or one address"
	case p != p.Masked():
		wrong, hint = fmt.Sprintf("%s has bits beyond its length", p), "write "+p.Masked().String()
	case p.Addr().Is4In6():
		wrong, hint = fmt.Sprintf("%s is an IPv4 address in IPv6 form", p), "write it as "+p.Addr().Unmap().String()
	}
	if wrong != "" {
		r.problem(Problem{
			File: r.files[at.file], Line: int(number), Column: utf8.RuneCountInString(line[:strings.Index(line, word)]) + 1,
			Message: wrong, Hint: hint, Source: strings.TrimRight(line, "\r\n"),
		})
		return listed{}, false
	}
	one := newListed(p)
	one.line, one.file = at.line, at.file
	return one, true
}

// excerptWord returns the beginning of a word that is too long to be shown.
func excerptWord(s string) string { return s[:min(len(s), 64)] }

// fail records an error at the entry l.
func (r *listReader) fail(l *listed, message string) {
	p := Problem{File: r.files[l.file], Line: int(l.line), Column: 1, Source: l.prefix().String()}
	if l.file == 0 {
		p = r.c.listAt[p.Source]
	}
	p.Message = message
	r.problem(p)
}

func (r *listReader) problem(p Problem) {
	if len(r.problems) == maxListProblems {
		r.more++
		return
	}
	r.problems = append(r.problems, p)
}
