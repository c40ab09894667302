package signature

import (
	"slices"
	"strconv"
	"strings"
)

// Ports is a set of ports. Nil has every port.
type Ports struct {
	ranges []portRange // sorted, apart
}

// portRange is the ports from first to last, both included.
type portRange struct{ first, last uint16 }

var allPorts = []portRange{{0, 65535}}

// Any reports whether s has every port.
func (s *Ports) Any() bool { return s == nil }

// Contains reports whether p is in s.
func (s *Ports) Contains(p uint16) bool {
	if s == nil {
		return true
	}
	i, _ := slices.BinarySearchFunc(s.ranges, p, func(r portRange, p uint16) int { return int(r.last) - int(p) })
	return i < len(s.ranges) && s.ranges[i].first <= p
}

// Count returns how many ports s has.
func (s *Ports) Count() (n int) {
	if s == nil {
		return 1 << 16
	}
	for _, r := range s.ranges {
		n += int(r.last) - int(r.first) + 1
	}
	return n
}

// Each calls f with each port of s.
func (s *Ports) Each(f func(port uint16)) {
	ranges := allPorts
	if s != nil {
		ranges = s.ranges
	}
	for _, r := range ranges {
		for p := int(r.first); p <= int(r.last); p++ {
			f(uint16(p))
		}
	}
}

// portList parses a list of ports: the text of a header, with variables.
func (e *environment) portList(text string) (*Ports, error) {
	if s, ok := e.portSets[text]; ok {
		return s, nil
	}
	r, err := list(text, 0, e.ports, portElement, allPorts, portOps)
	if err != nil {
		return nil, err
	}
	var s *Ports
	if len(r) != 1 || r[0] != allPorts[0] {
		s = &Ports{r}
	}
	e.portSets[text] = s
	return s, nil
}

// portElement parses any, N, N:M, N: or :M.
func portElement(w string) ([]portRange, error) {
	if w == "any" {
		return allPorts, nil
	}
	lo, hi, isRange := strings.Cut(w, ":")
	r := portRange{0, 65535}
	var err1, err2 error
	if lo = strings.TrimSpace(lo); lo != "" || !isRange {
		r.first, err1 = port(lo)
	}
	if hi = strings.TrimSpace(hi); !isRange {
		r.last = r.first
	} else if hi != "" {
		r.last, err2 = port(hi)
	}
	if err1 != nil || err2 != nil || r.last < r.first {
		return nil, wrongAt(0, "%q is not a port, a range N:M or a variable", w)
	}
	return []portRange{r}, nil
}

func port(w string) (uint16, error) {
	n, err := strconv.ParseUint(w, 10, 16)
	return uint16(n), err
}

var portOps = ops[portRange]{
	compare:  func(a, b portRange) int { return int(a.first) - int(b.first) },
	adjacent: func(a, b portRange) bool { return int(b.first) <= int(a.last)+1 },
	join:     func(a, b portRange) portRange { return portRange{a.first, max(a.last, b.last)} },
	between: func(a, b *portRange) (portRange, bool) {
		lo, hi := 0, 65535
		if a != nil {
			lo = int(a.last) + 1
		}
		if b != nil {
			hi = int(b.first) - 1
		}
		return portRange{uint16(max(lo, 0)), uint16(max(hi, 0))}, lo <= hi
	},
}
