package signature

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// BitOp is the operation of a rule on a bit.
type BitOp uint8

// The operations. Those up to IsNotSet are conditions; the others are done when the rule matches.
const (
	IsSet BitOp = iota
	IsNotSet
	Set
	Unset
	Toggle
)

var bitOps = map[string]BitOp{"isset": IsSet, "isnotset": IsNotSet, "set": Set, "unset": Unset, "toggle": Toggle}

// Track defines whose state it is.
type Track uint8

// The values of Track.
const (
	TrackFlow Track = iota // flowbits
	TrackSrc
	TrackDst
	TrackPair
	TrackRule
	TrackBoth // either end, thresholds
)

var tracks = map[string]Track{
	"ip_src": TrackSrc, "ip_dst": TrackDst, "ip_pair": TrackPair, "by_src": TrackSrc, "by_dst": TrackDst,
	"by_both": TrackPair, "by_rule": TrackRule, "by_flow": TrackFlow,
}

// Bit is one operation of flowbits or xbits. Of several names, IsSet wants one.
type Bit struct {
	Op     BitOp
	Names  []string
	Track  Track
	Expire time.Duration // xbits: how long after Set
}

// Limit is a threshold, or a detection_filter.
type Limit struct {
	Type  LimitType
	Track Track
	Count uint32
	Time  time.Duration
}

// LimitType defines what a Limit lets through.
type LimitType uint8

// The types.
const (
	AtMost  LimitType = iota // "limit": the first Count in a time
	Every                    // "threshold": every Count-th in a time
	Once                     // "both": one in a time, the Count-th
	AtLeast                  // detection_filter: all after the first Count in a time
)

func stateKeywords(value addValue, bare addBare) {
	keywords["flowbits"] = keyword{read: (*ruleParser).flowbits, needs: true}
	value("xbits", (*ruleParser).xbits)
	value("flowint", (*ruleParser).flowint)
	value("threshold", func(p *ruleParser, v string) (err error) {
		p.rule.Limit, err = limit(v, map[string]LimitType{"limit": AtMost, "threshold": Every, "both": Once})
		return err
	})
	value("detection_filter", func(p *ruleParser, v string) (err error) {
		p.rule.Detect, err = limit("type detect,"+v, map[string]LimitType{"detect": AtLeast})
		return err
	})
}

// flowbits reads OPERATION, NAME[|NAME]... or noalert.
func (p *ruleParser) flowbits(v string) error {
	op, name, _ := strings.Cut(v, ",")
	if op = strings.TrimSpace(op); op == "noalert" {
		p.rule.NoAlert = true
		return nil
	}
	o, ok := bitOps[op]
	names := strings.Split(strings.TrimSpace(name), "|")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if !ok || slices.Contains(names, "") {
		return fmt.Errorf("flowbits: %q is not isset, isnotset, set, unset or toggle and a name", v)
	}
	if len(names) > 1 && o > IsNotSet {
		return errors.New("several names stand with isset and isnotset only")
	}
	p.rule.Bits = append(p.rule.Bits, Bit{Op: o, Names: names})
	return nil
}

// maxExpire is the time that a bit of an address lives without a time of its own, as in Suricata.
const maxExpire = 30 * time.Second

// xbits reads OPERATION, NAME, track WHO [, expire SECONDS].
func (p *ruleParser) xbits(v string) error {
	a := arguments(v)
	if len(a) == 1 && a[0] == "noalert" {
		p.rule.NoAlert = true
		return nil
	}
	if len(a) < 3 || a[1] == "" {
		return errors.New("xbits has OPERATION, NAME, track WHO")
	}
	o, ok := bitOps[a[0]]
	b := Bit{Op: o, Names: []string{a[1]}, Expire: maxExpire}
	for _, w := range a[2:] {
		f := strings.Fields(w)
		switch {
		case len(f) == 2 && f[0] == "track":
			b.Track = tracks[f[1]]
		case len(f) == 2 && f[0] == "expire":
			n, err := number(f[1])
			if err != nil || n == 0 || n > 1<<31 {
				return fmt.Errorf("expire %s is not a number of seconds", f[1])
			}
			b.Expire = time.Duration(n) * time.Second
		default:
			return fmt.Errorf("xbits does not know %q", w)
		}
	}
	if !ok || b.Track == TrackFlow {
		return fmt.Errorf("xbits: %q is not an operation, a name and track ip_src, ip_dst or ip_pair", v)
	}
	p.rule.Bits = append(p.rule.Bits, b)
	return nil
}

// limit reads type T, track T, count N, seconds N in any order.
func limit(v string, types map[string]LimitType) (*Limit, error) {
	l := &Limit{}
	has := map[string]bool{}
	for _, w := range arguments(v) {
		f := strings.Fields(w)
		if len(f) != 2 {
			return nil, fmt.Errorf("%q is not a word and its value", w)
		}
		ok := true
		switch f[0] {
		case "type":
			l.Type, ok = types[f[1]]
		case "track":
			l.Track, ok = tracks[f[1]]
		case "count", "seconds":
			n, err := number(f[1])
			ok = err == nil && n > 0 && n < 1<<31
			if f[0] == "count" {
				l.Count = uint32(n)
			} else {
				l.Time = time.Duration(n) * time.Second
			}
		default:
			ok = false
		}
		if !ok {
			return nil, fmt.Errorf("%q is not understood", w)
		}
		has[f[0]] = true
	}
	for _, k := range []string{"type", "track", "count", "seconds"} {
		if !has[k] {
			return nil, fmt.Errorf("%s is missing", k)
		}
	}
	return l, nil
}
