package filter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// actionWords are the words that a rule may begin with.
var actionWords = []string{"allow", "deny", "pass", "drop", "redirect", "rate", "mark", "capture"}

// actions reads what a rule does: at most one of allow, deny and redirect, and rate, mark and capture.
func (p *parser) actions(r *Rule) error {
	verdict := ""
	for n := 0; ; n++ {
		w := p.peek()
		var err error
		switch w {
		case "allow", "pass", "deny", "drop", "redirect":
			p.word()
			if verdict != "" {
				return fmt.Errorf("%q stands behind %q: a rule has one of allow, deny and redirect", w, verdict)
			}
			verdict = w
			err = p.verdict(r, w)
		case "rate":
			err = p.rate(r)
		case "mark":
			err = p.mark(r)
		case "capture":
			p.word()
			r.Capture = true
		default:
			if n > 0 {
				return p.consistent(r)
			}
			p.word()
			if err := unsupported(w); err != nil {
				return err
			}
			return fmt.Errorf("a rule begins with %s or %s, not %.60q%s", strings.Join(actionWords[:len(actionWords)-1], ", "), actionWords[len(actionWords)-1], w,
				didYouMean(w, actionWords...))
		}
		if err != nil {
			return err
		}
	}
}

// verdict reads the rest of allow, deny or redirect.
func (p *parser) verdict(r *Rule, w string) error {
	switch w {
	case "deny", "drop":
		r.Action = Drop
	case "redirect":
		r.Action, r.Device = Redirect, p.word()
		if !isName(r.Device) {
			return fmt.Errorf("behind redirect stands a device, not %q", r.Device)
		}
	}
	return nil
}

// consistent reports actions that exclude each other.
func (p *parser) consistent(r *Rule) error {
	if r.Action == Drop && r.Rate.PerSecond != 0 {
		return errors.New("deny drops all packets: rate says how many of them pass, and stands with allow or redirect")
	}
	return nil
}

// mark reads the mark of a rule.
func (p *parser) mark(r *Rule) error {
	p.word()
	w := p.word()
	n, err := strconv.ParseUint(w, 0, 32)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a mark, 1 to 4294967295", w)
	}
	r.Mark = uint32(n)
	return nil
}

// rate reads "rate RATE [burst N] [per source]".
func (p *parser) rate(r *Rule) (err error) {
	p.word()
	if r.Rate.PerSecond != 0 {
		return errors.New("a rule has one rate")
	}
	if r.Rate, err = parseRate(p.word()); err != nil {
		return err
	}
	if p.took("burst") {
		w := p.word()
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil || n == 0 || n > MaxBurst {
			return fmt.Errorf("%q is not a burst, %s, 1 to %d", w, r.Rate.unit(), uint64(MaxBurst))
		}
		r.Rate.Burst = n
	}
	if p.took("per") {
		if w := p.word(); w != "source" {
			return fmt.Errorf("behind per stands source, not %q", w)
		}
		r.Rate.PerSource = true
	}
	return nil
}

// unit returns what a rate counts.
func (r *Rate) unit() string {
	if r.Bytes {
		return "bytes"
	}
	return "packets"
}

// rateUnits are the units of a rate: packets, or bits.
var rateUnits = []struct {
	name  string
	times uint64
	bits  bool
}{{"Gbps", 1e9, true}, {"Mbps", 1e6, true}, {"kbps", 1e3, true}, {"Mpps", 1e6, false}, {"kpps", 1e3, false}, {"pps", 1, false}, {"bps", 1, true}}

// burstBytes is the least default burst of a rate of bytes: a packet joined of many fits.
const burstBytes = 65536

// parseRate reads a number with a unit. Its burst is what flows in 100 ms.
func parseRate(w string) (Rate, error) {
	for _, u := range rateUnits {
		digits, ok := strings.CutSuffix(w, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || n == 0 || n > MaxRate/u.times {
			break
		}
		r := Rate{PerSecond: n * u.times, Bytes: u.bits}
		if u.bits {
			r.PerSecond = max(r.PerSecond/8, 1)
		}
		r.Burst = min(max(r.PerSecond/10, 1), MaxBurst)
		if u.bits {
			r.Burst = max(r.Burst, burstBytes)
		}
		return r, nil
	}
	return Rate{}, fmt.Errorf("%q is not a rate, such as 100pps, 10kpps or 100Mbps", w)
}

// unsupportedWords are those of other packet filters that a rule cannot have here.
var unsupportedWords = map[string]bool{
	"reject": true, "log": true, "nat": true, "snat": true, "dnat": true, "masquerade": true, "state": true, "ct": true, "established": true, "related": true,
	"flags": true, "icmp-type": true, "tos": true, "dscp": true, "vlan": true, "mac": true, "in": true, "out": true, "on": true, "ttl": true, "length": true,
	"jump": true, "goto": true, "return": true, "not": true, "limit": true, "quota": true, "owner": true, "keep": true, "quick": true,
}

// unsupportedError names what Millrace does not implement.
type unsupportedError string

func (e unsupportedError) Error() string { return fmt.Sprintf("%q is not supported", string(e)) }

// unsupported returns an error if w is a word of other packet filters.
func unsupported(w string) error {
	if unsupportedWords[w] {
		return unsupportedError(w)
	}
	return nil
}

// isName reports whether w can name a group, a list or a device.
func isName(w string) bool {
	if w == "" || len(w) > 64 {
		return false
	}
	for _, c := range w {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("_.-", c) {
			return false
		}
	}
	return true
}
