package inspect

import (
	"net/netip"

	"github.com/millrace/millrace/filter/signature"
)

// limitKey identifies what a threshold counts.
type limitKey struct {
	rule ruleKey
	kind uint8 // threshold or detection_filter
	a, b netip.Addr
}

// limitState is a count within a time.
type limitState struct {
	since int64
	count uint32
}

// maxLimits bounds the counts of thresholds.
const maxLimits = 1 << 18

// Thresholds are the counts of matches that thresholds and detection filters ask for. One belongs to one goroutine.
type Thresholds struct{ limits map[limitKey]limitState }

// NewThresholds returns counts of nothing.
func NewThresholds() *Thresholds { return &Thresholds{map[limitKey]limitState{}} }

// Detects counts a match of an engine with Config.LeaveThresholds, and reports whether the detection filter of its rule lets it
// through. Matches come in the order of their packets.
func (t *Thresholds) Detects(a *Alert) bool {
	return a.Rule == nil || a.Rule.Detect == nil || t.passes(a.Rule.Detect, ruleKey{a.Rule.GID, a.Rule.SID}, a.Time, a.Src, a.Dst)
}

// Passes is Detects for the threshold of the rule, of a match that its detection filter lets through.
func (t *Thresholds) Passes(a *Alert) bool {
	return a.Rule == nil || a.Rule.Limit == nil || t.passes(a.Rule.Limit, ruleKey{a.Rule.GID, a.Rule.SID}, a.Time, a.Src, a.Dst)
}

// passes counts a match and reports whether a limit lets it through. Counts outlive a swap of the rules, as ruleKey is the same: else
// a reload would begin each limit anew.
func (t *Thresholds) passes(l *signature.Limit, rule ruleKey, now int64, src, dst netip.Addr) bool {
	k := limitKey{rule: rule}
	if l.Type == signature.AtLeast {
		k.kind = 1
	}
	switch l.Track {
	case signature.TrackSrc:
		k.a = src
	case signature.TrackDst:
		k.a = dst
	case signature.TrackPair:
		k.a, k.b = src, dst
	}
	s, ok := t.limits[k]
	if !ok && len(t.limits) >= maxLimits {
		delete(t.limits, earliest(t.limits, func(s limitState) int64 { return s.since }))
	}
	if !ok || now < s.since || now-s.since > int64(l.Time) { // captures may go back in time
		s = limitState{since: now}
	}
	s.count++
	pass := false
	switch l.Type {
	case signature.AtMost:
		pass = s.count <= l.Count
	case signature.Every:
		if pass = s.count >= l.Count; pass { // the time goes on: the next ones count from 0 in what is left of it
			s.count = 0
		}
	case signature.Once:
		pass = s.count == l.Count
	case signature.AtLeast:
		pass = s.count > l.Count
	}
	t.limits[k] = s
	return pass
}
