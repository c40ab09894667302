package signature

import (
	"bytes"
	"fmt"
	"unicode"
)

// Rules whose tests of one buffer no size of it satisfies would load and never match: the rule's author has mistaken a number.

// anySize is the High of a buffer without bounds.
const anySize = 1 << 62

// within returns the numbers that are in r and in o, which have no Not.
func (r Range) within(o Range) Range {
	return Range{Low: max(r.Low, o.Low), High: min(r.High, o.High)}
}

// sizesOf returns the sizes that a buffer has by itself: digests are texts of one length.
func sizesOf(b Buffer) Range {
	most := uint64(anySize)
	switch b {
	case JA3Hash:
		most = 32
	case JA4Hash:
		most = 36
	case TLSCertFingerprint:
		most = 59
	}
	return Range{High: most}
}

// checkPacket returns an error where two tests of one number of packets exclude one another.
func (r *Rule) checkPacket() error {
	seen := map[Field]Range{}
	for _, t := range r.Packet {
		if t.Range.Not || t.Field >= FieldStreamClient || t.Field == FieldFlags || t.Field == FieldFragBits {
			continue
		}
		if was, ok := seen[t.Field]; ok {
			t.Range = t.Range.within(was)
		}
		if seen[t.Field] = t.Range; t.Range.Low > t.Range.High {
			return fmt.Errorf("no packet is in all the ranges that the rule has for one of its numbers")
		}
	}
	return nil
}

// payloadSizes returns the sizes of payload that dsize permits.
func (r *Rule) payloadSizes() Range {
	all := Range{High: anySize}
	for _, t := range r.Packet {
		if t.Field == FieldPayloadLen && !t.Range.Not {
			all = all.within(t.Range)
		}
	}
	return all
}

// sizes follows the tests of a part.
type sizes struct {
	Range
	end int // where the test before ends at the earliest
}

// needs raises the least size.
func (z *sizes) needs(n int) { z.Low = max(z.Low, uint64(max(n, 0))) }

// earliestEnd returns the least number of bytes that there are up to the end of a content, where the one before it ends at that at the
// earliest.
func (c *Content) earliestEnd(before int) int {
	switch {
	case c.Relative && c.DistanceVar == 0:
		return max(before+c.Distance, 0) + len(c.Bytes)
	case !c.Relative && c.OffsetVar == 0:
		return c.Offset + len(c.Bytes)
	}
	return len(c.Bytes)
}

// check returns what makes the tests of a part fail in every buffer. of are the sizes that a packet of the rule permits.
func (q *Part) check(of Range) error {
	if q.Absent && q.OrElse != (len(q.Tests) > 0) {
		return fmt.Errorf("%v is absent, so nothing is in it; absent:or_else is followed by what may be in it", q.Buffer)
	}
	z, numbers := &sizes{Range: Range{High: anySize}}, map[uint64]Range{}
	raw := len(q.Transforms) == 0 // others have sizes and bytes of their own
	switch {
	case raw && q.Buffer == Payload:
		z.Range = of
	case raw:
		z.Range = sizesOf(q.Buffer)
	}
	for i := range q.Tests {
		t := &q.Tests[i]
		if err := t.check(z); err != nil {
			return err
		}
		if t.Kind == TestContent && raw && !t.Content.Not {
			if err := t.Content.checkIn(q.Buffer); err != nil {
				return err
			}
		}
		if t.Kind != TestInteger || t.Size.Not {
			continue
		}
		if was, ok := numbers[t.Mask]; ok && t.Size.within(was).Low > t.Size.within(was).High {
			return fmt.Errorf("no number of %v is in two ranges that exclude one another", q.Buffer)
		}
		numbers[t.Mask] = t.Size
	}
	if z.Low > z.High {
		return fmt.Errorf("the tests need a buffer of at least %d and at most %d bytes, which none has", z.Low, z.High)
	}
	return nil
}

// check returns what makes a test fail whatever the buffer has, and notes what it makes of the sizes.
func (t *Test) check(z *sizes) error {
	switch t.Kind {
	case TestSize:
		if !t.Size.Not {
			z.Range = z.within(t.Size)
		}
	case TestContent:
		if c := t.Content; !c.Not {
			z.end = c.earliestEnd(z.end)
			z.needs(z.end)
		}
	case TestPattern:
		z.end = 0
	case TestBase64:
		if z.end = 0; !t.Base64.Relative {
			z.needs(t.Base64.Offset + 1)
		}
	case TestByte, TestExtract, TestMath, TestJump:
		if t.Kind != TestByte {
			z.end = 0 // it goes back or on
		}
		if n := t.Number; !n.Relative && n.OffsetVar == 0 {
			if n.Offset < 0 {
				return fmt.Errorf("offset %d is before the begin of the buffer; it is behind another test with relative", n.Offset)
			}
			z.needs(n.Offset + 1)
		}
	case TestIsDataAt:
		return t.IsDataAt.check(z)
	}
	return nil
}

// checkIn returns why a buffer never has a content.
func (c *Content) checkIn(b Buffer) error {
	switch {
	case b == HTTPHost && !c.NoCase && bytes.ContainsFunc(c.Bytes, unicode.IsUpper):
		return fmt.Errorf("%v is in lower case, and %q is not: write it so, or add nocase", b, c.Bytes)
	case (b == HTTPMethod || b == SIPMethod) && bytes.ContainsAny(c.Bytes, " \t"):
		return fmt.Errorf("%v has no blanks, as %q", b, c.Bytes)
	}
	return nil
}

// check returns what makes the test fail whatever the buffer has.
func (d *IsDataAt) check(z *sizes) error {
	switch {
	case d.Var != 0:
	case d.Relative && !d.Not:
		z.needs(z.end + d.At)
	case d.Relative:
	case d.At < 0:
		return fmt.Errorf("isdataat %d is before the begin of the buffer", d.At)
	case d.Not:
		z.High = min(z.High, uint64(d.At))
	default:
		z.needs(d.At + 1)
	}
	return nil
}
