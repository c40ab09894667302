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

// summing returns what makes codes with keys, which are secret: zeros, ones, or others.
func summing(secret int) func() {
	r := rand.New(rand.NewPCG(uint64(secret), 1))
	b := Batch{Algorithm: HMACSHA256, Mem: make([]byte, 4096)}
	for i := range 9 {
		key := bytes.Repeat([]byte{byte(-min(secret, 1))}, 32)
		if secret > 1 {
			for j := range key {
				key[j] = byte(r.Uint32())
			}
		}
		b.Keys = append(b.Keys, NewKey(key))
		b.Ops = append(b.Ops, Op{Data: uint32(100 * i), Len: uint32(40 * i), Sum: uint32(3000 + 32*i), Key: uint32(i)})
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

func TestTimeDependsOnNoSecret(t *testing.T) {
	var runs [2][64]func()
	for i := range 64 {
		runs[0][i], runs[1][i] = summing(0), summing(2+i)
	}
	var run func()
	consttime.Timing(t, func(class int) { run = runs[class][rand.IntN(64)] }, func() { run() })
}
