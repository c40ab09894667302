package digest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/testkit/consttime"
)

func TestMain(m *testing.M) {
	consttime.Subject("hmac-sha256", summing)
	os.Exit(consttime.Main(m))
}

// secretKeys returns nine keys, which are secret: zeros, ones, or others.
func secretKeys(secret int) (keys []*Key) {
	r := rand.New(rand.NewPCG(uint64(secret), 1))
	for range 9 {
		key := bytes.Repeat([]byte{byte(-min(secret, 1))}, 32)
		if secret > 1 {
			for j := range key {
				key[j] = byte(r.Uint32())
			}
		}
		keys = append(keys, NewKey(key))
	}
	return keys
}

// summing returns what makes codes with the secret keys of that number.
func summing(secret int) func() { return summingWith(secretKeys(secret)) }

func summingWith(keys []*Key) func() {
	b := Batch{Algorithm: HMACSHA256, Mem: make([]byte, 4096), Keys: keys}
	for i := range uint32(len(keys)) {
		b.Ops = append(b.Ops, Op{Data: 100 * i, Len: 40 * i, Sum: 3000 + 32*i, Key: i})
	}
	c := NewCPU()
	return func() {
		if c.Sum(&b) != len(b.Ops) || c.Verify(&b) != len(b.Ops) {
			panic("not verified")
		}
	}
}

func TestBranchesDependOnNoSecret(t *testing.T) {
	if NewCPU().Form(HMACSHA256) == FormStandard {
		t.Skip("this CPU has no form of the package's own")
	}
	secrets := 2
	if os.Getenv(consttime.TimingEnv) != "" { // this takes longer
		secrets = 4
	}
	consttime.Branches(t, "hmac-sha256", secrets, []string{"github.com/millrace/millrace/gpukern/digest."}, nil, []string{".sha256x16"})
}

// TestTimeDependsOnNoSecret has one place for all keys: where memory lies changes the time, too.
func TestTimeDependsOnNoSecret(t *testing.T) {
	var all [2][64][]*Key
	for i := range 64 {
		all[0][i], all[1][i] = secretKeys(0), secretKeys(2+i)
	}
	keys := secretKeys(0)
	run := summingWith(keys)
	consttime.Timing(t, func(class int) {
		for i, k := range all[class][rand.IntN(64)] {
			keys[i].inner, keys[i].outer = k.inner, k.outer
		}
	}, run)
}
