package digest

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
)

// TestCAVP has NIST's vectors of SHA-256, SHA-512 and HMAC-SHA-256, each in one batch.
func TestCAVP(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		sumsAre(t, c, SHA256, "SHA256ShortMsg.rsp", "SHA256LongMsg.rsp")
		sumsAre(t, c, SHA512, "SHA512ShortMsg.rsp", "SHA512LongMsg.rsp")
		macs := Batch{Algorithm: HMACSHA256}
		for _, r := range cavp.Records(t, "HMAC.rsp") {
			if r["L"] != "32" {
				continue
			}
			msg, mac := r.Bytes(t, "Msg"), r.Bytes(t, "Mac")
			at := uint32(len(macs.Mem))
			macs.Mem = append(append(macs.Mem, msg...), mac...)
			macs.Keys = append(macs.Keys, NewKey(r.Bytes(t, "Key")))
			macs.Ops = append(macs.Ops, Op{Data: at, Len: uint32(len(msg)), Sum: at + uint32(len(msg)), SumLen: uint8(len(mac)), Key: uint32(len(macs.Ops))})
		}
		if n := c.Verify(&macs); n != len(macs.Ops) || n < 15 {
			t.Errorf("%d of %d verify", n, len(macs.Ops))
		}
	})
}

// sumsAre compares the sums of messages of whole bytes with those of two files.
func sumsAre(t *testing.T, c *CPU, a Algorithm, short, long string) {
	t.Helper()
	sums, want, size := Batch{Algorithm: a}, [][]byte{}, uint32(a.Size())
	for _, r := range append(cavp.Records(t, short), cavp.Records(t, long)...) {
		bits, _ := strconv.Atoi(r["Len"])
		at := uint32(len(sums.Mem))
		sums.Mem = append(append(sums.Mem, r.Bytes(t, "Msg")[:bits/8]...), make([]byte, size)...)
		sums.Ops = append(sums.Ops, Op{Data: at, Len: uint32(bits / 8), Sum: at + uint32(bits/8)})
		want = append(want, r.Bytes(t, "MD"))
	}
	if n := c.Sum(&sums); n != len(want) || n < 18 {
		t.Errorf("%v: %d of %d", a, n, len(want))
	}
	for i, op := range sums.Ops {
		if got := sums.Mem[op.Sum:][:size]; !bytes.Equal(got, want[i]) {
			t.Errorf("%v: message of %d bytes: %x, want %x", a, op.Len, got, want[i])
		}
	}
}
