package convert

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/excerpt"
	"github.com/millrace/millrace/internal/regfile"
)

// Bounds of a source, so that a hostile one cannot take the machine's memory or time.
const (
	// MaxBytes bounds all files of a source together.
	MaxBytes = 16 << 20

	maxFiles      = 1024
	maxDepth      = 16 // of files that include others
	maxNesting    = 64 // of blocks
	maxDirectives = 200_000
	maxProblems   = 1000
)

// source is a file and those that it includes.
type source struct {
	dir      string // that names of included files are relative to
	files    []file
	bytes    int
	problems []config.Problem
	lines    map[int][]string // of each file, split when one is shown
	entered  int              // directives
}

type file struct{ name, text string }

// name returns the name of the file of a place.
func (s *source) name(at pos) string { return s.files[at.file].name }

// fail notes an error of the source. It reports whether more are noted.
func (s *source) fail(at pos, hint, format string, args ...any) bool {
	if len(s.problems) >= maxProblems {
		return false
	}
	p := config.Problem{File: s.name(at), Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...), Hint: hint}
	if lines := s.split(at.file); at.line >= 1 && at.line <= len(lines) {
		p.Source = strings.TrimSuffix(lines[at.line-1], "\r")
	}
	s.problems = append(s.problems, p)
	return true
}

func (s *source) split(file int) []string {
	if s.lines == nil {
		s.lines = map[int][]string{}
	}
	if s.lines[file] == nil {
		s.lines[file] = strings.Split(s.files[file].text, "\n")
	}
	return s.lines[file]
}

// err returns the errors of the source, in the order of its files; nil for none.
func (s *source) err() error {
	if len(s.problems) == 0 {
		return nil
	}
	number := map[string]int{}
	for i, f := range slices.Backward(s.files) {
		number[f.name] = i
	}
	slices.SortStableFunc(s.problems, func(a, b config.Problem) int {
		return cmp.Or(cmp.Compare(number[a.File], number[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &config.Error{Problems: s.problems}
}

// add enters the text of a file, and returns its number.
func (s *source) add(name, text string) int {
	s.files = append(s.files, file{name, text})
	s.bytes += len(text)
	n := len(s.files) - 1
	if line, column, found := excerpt.Binary(text); found {
		s.fail(pos{n, line, column}, "", "%sa configuration", excerpt.NotText)
		s.files[n].text = ""
	}
	return n
}

// count reports whether one more directive is within the bound.
func (s *source) count(at pos) bool {
	if s.entered++; s.entered == maxDirectives+1 {
		s.fail(at, "", "there are more than %d directives", maxDirectives)
	}
	return s.entered <= maxDirectives
}

// inclusion is a file that includes others, and the one that it was included by.
type inclusion struct {
	path  string
	outer *inclusion
	depth int
}

func (i *inclusion) has(path string) bool {
	for ; i != nil; i = i.outer {
		if i.path == path {
			return true
		}
	}
	return false
}

// include returns the numbers of the files that a pattern names, each with what it is included by. Files that are not there
// are none. The error is that of a bound, and is noted.
func (s *source) include(at pos, by *inclusion, pattern string, read func(n int, by *inclusion)) (found bool) {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(s.dir, pattern)
	}
	paths := []string{pattern}
	if strings.ContainsAny(pattern, "*?[") {
		var err error
		if paths, err = filepath.Glob(pattern); err != nil {
			s.fail(at, "", "%q is no pattern of files: %v", pattern, err)
			return true
		}
		slices.Sort(paths)
		found = true // none is none
	}
	for _, path := range paths {
		path = filepath.Clean(path)
		switch {
		case by.has(path):
			s.fail(at, "", "%s includes itself", path)
			return true
		case by.depth >= maxDepth:
			s.fail(at, "", "files include others more than %d deep", maxDepth)
			return true
		case len(s.files) >= maxFiles:
			s.fail(at, "", "there are more than %d files", maxFiles)
			return true
		}
		text, err := regfile.Read(path, int64(MaxBytes-s.bytes)+1)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			s.fail(at, "", "%v", err)
		case len(text) > MaxBytes-s.bytes:
			s.fail(at, "", "the files have more than %d bytes", MaxBytes)
			return true
		default:
			read(s.add(path, string(text)), &inclusion{path, by, by.depth + 1})
		}
		found = true
	}
	return found
}

// path returns a path of the source as one that does not depend on where the output is.
func (s *source) path(name string) string {
	if filepath.IsAbs(name) || name == "" {
		return name
	}
	return filepath.Join(s.dir, name)
}

// port notes an error of the source for a port that is none, and reports whether it has.
func (s *source) port(at pos, address string) bool {
	port := address[strings.LastIndexByte(address, ':')+1:]
	if port == "" || len(port) > 9 || strings.Trim(port, "0123456789") != "" || strings.Count(address, ":") > 1 && !strings.HasPrefix(address, "[") {
		return false
	}
	if n := atoi(port); n > 0 && n < 65536 {
		return false
	}
	s.mistake(at, "ports are 1 to 65535", "%s is no port", port)
	return true
}

// mistake notes an error once for each place.
func (s *source) mistake(at pos, hint, format string, args ...any) {
	if !slices.ContainsFunc(s.problems, func(p config.Problem) bool {
		return p.File == s.name(at) && p.Line == at.line && p.Column == at.column
	}) {
		s.fail(at, hint, format, args...)
	}
}
