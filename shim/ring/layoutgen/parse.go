package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

type constant struct {
	name, comment string
	value         uint64
	text          string // as it was written
}

type enum struct {
	name, comment string
	values        []constant
}

type field struct {
	name, kind, writer, comment string
	of                          string // the struct of an array
	count, at, size             int
}

type structure struct {
	name, comment string
	size          int
	fields        []field
}

// layout is the description. order has its items as they were written: *constant, *enum and *structure.
type layout struct {
	order   []any
	structs map[string]*structure
}

func read(path string) (*layout, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(string(b))
}

func parse(text string) (*layout, error) {
	l := &layout{structs: map[string]*structure{}}
	for i, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if err := l.add(words); err != nil {
			return nil, fmt.Errorf("layout.txt:%d: %w", i+1, err)
		}
	}
	return l, l.check()
}

// add parses one line.
func (l *layout) add(words []string) error {
	need := map[string]int{"const": 3, "enum": 2, "value": 2, "struct": 3, "field": 5}[words[0]]
	if need == 0 || len(words) < need {
		return fmt.Errorf("%q is no const, enum, value, struct or field", strings.Join(words, " "))
	}
	name, comment := words[1], strings.Join(words[need:], " ")
	switch words[0] {
	case "const":
		v, err := strconv.ParseUint(words[2], 0, 64)
		l.order = append(l.order, &constant{name: name, comment: comment, value: v, text: words[2]})
		return err
	case "enum":
		l.order = append(l.order, &enum{name: name, comment: comment})
	case "value":
		e, ok := l.order[len(l.order)-1].(*enum)
		if !ok {
			return fmt.Errorf("value %s is in no enum", name)
		}
		e.values = append(e.values, constant{name: name, comment: comment, value: uint64(len(e.values))})
	case "struct":
		n, err := strconv.Atoi(words[2])
		s := &structure{name: name, comment: comment, size: n}
		l.order, l.structs[name] = append(l.order, s), s
		return err
	case "field":
		s, ok := l.order[len(l.order)-1].(*structure)
		if !ok {
			return fmt.Errorf("field %s is in no struct", name)
		}
		return l.addField(s, words, comment)
	}
	return nil
}

func (l *layout) addField(s *structure, words []string, comment string) (err error) {
	f := field{name: words[1], kind: words[2], writer: words[4], comment: comment, count: 1}
	if f.at, err = strconv.Atoi(words[3]); err != nil {
		return err
	}
	if of, n, array := strings.Cut(f.kind, "*"); array {
		f.kind = of
		if f.count, err = strconv.Atoi(n); err != nil {
			return err
		}
	}
	switch bits, isInt := strings.CutPrefix(f.kind, "u"); {
	case l.structs[f.kind] != nil:
		f.of, f.size = f.kind, l.structs[f.kind].size
	case isInt:
		if f.size, err = strconv.Atoi(bits); err != nil {
			return err
		}
		f.size /= 8
	default:
		return fmt.Errorf("field %s has the type %s", f.name, f.kind)
	}
	s.fields = append(s.fields, f)
	return nil
}

// check refuses fields that overlap, are out of place, or share a line of 64 bytes with a word of another writer.
func (l *layout) check() error {
	for _, s := range l.structs {
		end, writers := 0, map[int]string{}
		for _, f := range s.fields {
			if f.at < end || f.of == "" && f.at%f.size != 0 {
				return fmt.Errorf("%s.%s overlaps, or is not aligned", s.name, f.name)
			}
			end = f.at + f.size*f.count
			if w := writers[f.at/64]; f.of == "" && w != "" && w != f.writer {
				return fmt.Errorf("%s.%s is in a line with words of another writer (%s, %s)", s.name, f.name, w, f.writer)
			}
			writers[f.at/64] = f.writer
		}
		if end > s.size {
			return fmt.Errorf("%s has %d bytes in %d", s.name, end, s.size)
		}
	}
	return nil
}
