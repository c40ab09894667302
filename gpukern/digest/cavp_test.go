package digest

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/millrace/millrace/internal/testkit/cavp"
)

// TestCAVP has NIST's vectors of SHA-256 and HMAC-SHA-256, each in one batch.
func TestCAVP(t *testing.T) {
	everyForm(t, func(t *testing.T, c *CPU) {
		sums, want := Batch{Algorithm: SHA256}, [][]byte{}
		for _, r := range append(cavp.Records(t, "SHA256ShortMsg.rsp"), cavp.Records(t, "SHA256LongMsg.rsp")...) {
			bits, _ := strconv.Atoi(r["Len"])
			at := uint32(len(sums.Mem))
			sums.Mem = append(append(sums.Mem, r.Bytes(t, "Msg")[:bits/8]...), make([]byte, 32)...)
			sums.Ops = append(sums.Ops, Op{Data: at, Len: uint32(bits / 8), Sum: at + uint32(bits/8)})
			want = append(want, r.Bytes(t, "MD"))
		}
		if n := c.Sum(&sums); n != len(want) || n < 20 {
			t.Errorf("%d of %d", n, len(want))
		}
		for i, op := range sums.Ops {
			if got := sums.Mem[op.Sum:][:32]; !bytes.Equal(got, want[i]) {
				t.Errorf("message of %d bytes: %x, want %x", op.Len, got, want[i])
			}
		}
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
