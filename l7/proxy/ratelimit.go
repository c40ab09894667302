package proxy

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net/netip"
	"strconv"
	"time"

	"github.com/millrace/millrace/l7/ratelimit"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/metrics"
	"github.com/millrace/millrace/semantics"
)

// RateKey selects which requests a RateLimit counts together.
type RateKey struct {
	rewrite.Key                   // without a secret; a request that lacks it counts by the client
	Value       *rewrite.Template // in place of Key, if it is not nil
	All         bool              // all requests, in place of both
	User        bool              // who has sent the request, in place of all: of Guard.UserLimits
	// Prefix4 and Prefix6 are the bits of an address that make a client.
	Prefix4, Prefix6 int
}

// Announce selects the responses that have the fields RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers).
type Announce uint8

// Values of Announce.
const (
	AnnounceRefused Announce = iota // those to requests that are refused
	AnnounceAlways
	AnnounceNever
)

// RateMode selects what a RateLimit does with requests beyond it.
type RateMode uint8

// Values of RateMode.
const (
	RateEnforced RateMode = iota // they get 429
	RateDryRun                   // they are counted
)

// RateLimit bounds the requests of each key. Workers share it, also over reloads that leave it as it is: what is allowed is exact
// over all loops together.
type RateLimit struct {
	Name     string
	Key      RateKey
	Mode     RateMode
	Announce Announce

	limit        *ratelimit.Limit
	policy       string // the item of RateLimit-Policy
	mask4, mask6 [2]uint64
	text, client maphash.Seed
	counts       []*metrics.Block // of each worker
}

// RateCount is a counter of a RateLimit.
type RateCount int

// Values of RateCount.
const (
	RateAllowed RateCount = iota
	RateRefused
	RateWould // be refused, were it no dry run
	RateCounts
)

// String returns a name for labels.
func (c RateCount) String() string { return [...]string{"allowed", "refused", "dry_run"}[c] }

// NewRateLimit returns a limit for a number of workers.
func NewRateLimit(name string, key RateKey, opt ratelimit.Options, workers int) *RateLimit {
	l := &RateLimit{Name: name, Key: key, limit: ratelimit.New(opt), text: maphash.MakeSeed(), client: maphash.MakeSeed()}
	l.mask4, l.mask6 = maskOf(96+key.Prefix4), maskOf(key.Prefix6)
	l.policy = fmt.Sprintf("%q;q=%d;w=%d", name, opt.Requests, int(opt.Interval/time.Second))
	for range workers {
		l.counts = append(l.counts, metrics.NewBlock(int(RateCounts)))
	}
	return l
}

// Continue makes the limit go on with the counters of one that it replaces: they only grow. It is called before it is used. What
// keys have spent is given back, as the limit is another one.
func (l *RateLimit) Continue(old *RateLimit) { l.counts = old.counts }

// Counts returns the counters, summed over the workers. Any goroutine may call it.
func (l *RateLimit) Counts() (sum [RateCounts]uint64) {
	for _, b := range l.counts {
		b.AddTo(sum[:])
	}
	return sum
}

// Evicted returns how many keys in use had to make room for others. Any goroutine may call it.
func (l *RateLimit) Evicted() uint64 { return l.limit.Evicted() }

// spent is the result of a limit for a request.
type spent struct {
	of *RateLimit
	ratelimit.Result
}

// limit reports whether a request is within a limit, or goes on in spite of it. Otherwise it has answered.
func (x guarding) limit(g *Guard, l *RateLimit, src *rewrite.Source) bool {
	r := l.take(x.exchange, src)
	count := RateAllowed
	switch {
	case r.Allowed:
	case l.Mode == RateDryRun:
		count = RateWould
	default:
		count = RateRefused
	}
	l.counts[x.w.id].Add(int(count), 1)
	if l.Announce == AnnounceAlways || count == RateRefused {
		h := x.holding()
		h.spent = append(h.spent, spent{l, r})
	}
	if count != RateRefused {
		return true
	}
	x.refuseBy(g, GuardRate, l.Name, errRate)
	return false
}

// maxValues bounds the values of its key in a request. More are refused: each would take the place of another key.
const maxValues = 16

// take spends a request of each value that the request has for its key, until one has none: a backend may read any of them.
func (l *RateLimit) take(x *exchange, src *rewrite.Source) (r ratelimit.Result) {
	n := 0
	if l.Key.Value == nil && !l.Key.All && !l.Key.User {
		l.Key.Each(src, func(text string) {
			if n++; n > 1 && !r.Allowed {
				return
			}
			if n > maxValues {
				r.Allowed, r.RetryAfter = false, time.Second
				return
			}
			if one := l.limit.Take(x.w.Now, maphash.String(l.text, text)); n == 1 || !one.Allowed || one.Remaining < r.Remaining {
				r = one
			}
		})
	}
	if n == 0 {
		r = l.limit.Take(x.w.Now, l.keyOf(x, src))
	}
	return r
}

// keyOf returns the hash of what a request counts by. Texts and addresses have seeds of their own: no text is taken for an address.
func (l *RateLimit) keyOf(x *exchange, src *rewrite.Source) uint64 {
	k := &l.Key
	switch {
	case k.All:
		return 1
	case k.User:
		x.scratch = guarding{x}.appendUser(x.scratch[:0])
		return maphash.Bytes(l.text, x.scratch)
	case k.Value != nil:
		x.scratch = k.Value.Append(x.scratch[:0], editor{x}.values(&rewrite.Headers{}))
		return maphash.Bytes(l.text, x.scratch)
	}
	if k.By != rewrite.ByClient {
		if s, ok := k.Text(src); ok {
			return maphash.String(l.text, s)
		}
	}
	a := l.prefixOf(src.Client)
	return maphash.Bytes(l.client, a[:])
}

// prefixOf returns the part of an address that makes a client; of IPv4 in the mapped form.
func (l *RateLimit) prefixOf(a netip.Addr) [16]byte {
	mask := &l.mask6
	if a.Is4() || a.Is4In6() {
		mask = &l.mask4
	}
	b := a.As16()
	binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])&mask[0])
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])&mask[1])
	return b
}

// maskOf returns a mask of the first bits of an address.
func maskOf(bits int) [2]uint64 {
	return [2]uint64{^(^uint64(0) >> min(bits, 64)), ^(^uint64(0) >> max(bits-64, 0))}
}

// announce appends to the fields of a response what a guard has to say of its request. Of limits Retry-After (RFC 9110 10.2.3) is the
// longest of them, in whole seconds and so at least one.
func (x guarding) announce() {
	h := x.hold
	if h == nil {
		return
	}
	x.fields = append(x.fields, h.extra...)
	if len(h.spent) == 0 {
		return
	}
	policy, left := h.announced((*spent).appendPolicy), h.announced((*spent).appendLeft)
	var after time.Duration
	for i := range h.spent {
		if s := &h.spent[i]; s.of.Mode == RateEnforced {
			after = max(after, s.RetryAfter)
		}
	}
	if policy != "" {
		x.fields = append(x.fields, semantics.Field{Name: "ratelimit-policy", Value: policy}, semantics.Field{Name: "ratelimit", Value: left})
	}
	if after > 0 {
		start := len(h.text)
		h.text = strconv.AppendInt(h.text, seconds(after), 10)
		x.fields = append(x.fields, semantics.Field{Name: "retry-after", Value: view(h.text[start:])})
	}
}

// announced returns the list of what limits say.
func (h *hold) announced(item func(s *spent, dst []byte) []byte) string {
	start := len(h.text)
	for i := range h.spent {
		if s := &h.spent[i]; s.of.Announce != AnnounceNever {
			if len(h.text) > start {
				h.text = append(h.text, ", "...)
			}
			h.text = item(s, h.text)
		}
	}
	return view(h.text[start:])
}

func (s *spent) appendPolicy(dst []byte) []byte { return append(dst, s.of.policy...) }

// appendLeft appends what remains, and the time until nothing is spent.
func (s *spent) appendLeft(dst []byte) []byte {
	dst = append(append(append(dst, '"'), s.of.Name...), `";r=`...)
	dst = strconv.AppendInt(dst, int64(s.Remaining), 10)
	return strconv.AppendInt(append(dst, ";t="...), seconds(s.Reset), 10)
}

// seconds returns a time in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
