package digest

import (
	"os"
	"testing"

	"github.com/millrace/millrace/internal/testkit/guardpages"
)

// TestGuardPages has data that begins or ends where the memory does, as an arena's first and last packets may: a load beyond it
// would be a fault.
func TestGuardPages(t *testing.T) {
	size := uint32(2 * os.Getpagesize())
	mem := guardpages.New(t, int(size))
	everyForm(t, func(t *testing.T, c *CPU) {
		for _, a := range []Algorithm{SHA256, HMACSHA256, SHA512, BLAKE2s, CRC32C} {
			b := Batch{Algorithm: a, Mem: mem, Keys: []*Key{NewKey([]byte("key"))}}
			for n := range uint32(700) {
				b.Ops = b.Ops[:0]
				for i := range uint32(8) { // more than crypto/sha256 is left with
					b.Ops = append(b.Ops,
						Op{Data: size - n, Len: n, Sum: 64 * i},
						Op{Data: 0, Len: n, Sum: size - 64*(i+1)})
				}
				if done := c.Sum(&b); done != len(b.Ops) {
					t.Fatalf("%v, %d bytes: %d done", a, n, done)
				}
			}
		}
	})
}
