package symmetric

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/digest"
)

// The benchmarks measure bytes of texts a second: copied from any memory (host), in memory that the device maps (area), in the
// device's own (resident), on all cores of the CPU by its best form here (cpu), and on one (core). Texts are sealed over and
// over; in the end they are opened, or verified, and all must be right. MILLRACE_SYMMETRIC_JSON names a file to which each
// figure is added as a line.

// figure is a line of the JSON file.
type figure struct {
	Op       string  `json:"op"`
	Form     string  `json:"form"`
	Bytes    int     `json:"bytes"` // of a text
	N        int     `json:"n"`     // texts of a round
	GBps     float64 `json:"gb_per_s"`
	Ms       float64 `json:"ms"` // of a round
	Verified int     `json:"verified"`
}

func (f figure) report(b *testing.B) {
	b.ReportMetric(f.GBps, "GB/s")
	b.ReportMetric(f.Ms, "ms/round")
	b.ReportMetric(0, "ns/op")
	if f.Verified != f.N {
		b.Errorf("%s, %s, %d bytes: %d of %d texts are right", f.Op, f.Form, f.Bytes, f.Verified, f.N)
	}
	name := os.Getenv("MILLRACE_SYMMETRIC_JSON")
	if name == "" {
		return
	}
	line, err := json.Marshal(f)
	if err != nil {
		b.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		b.Fatal(err)
	}
}

// rounds measures f, which does n texts. The first round makes memory and is not counted.
func rounds(b *testing.B, fig figure, f func() int, verify func() int) {
	if done := f(); done != fig.N {
		b.Fatalf("%d of %d done", done, fig.N)
	}
	var took time.Duration
	count := 0
	for b.Loop() {
		start := time.Now()
		f()
		took += time.Since(start)
		count++
	}
	fig.Verified = verify()
	fig.GBps = float64(fig.N) * float64(fig.Bytes) * float64(count) / took.Seconds() / 1e9
	fig.Ms = took.Seconds() * 1e3 / float64(count)
	fig.report(b)
}

// benchBytes is the memory of a round, and benchSmall of what a device can have looked up the pages of; small calls have benchCall
// texts.
const (
	benchBytes = 256 << 20
	benchSmall = 32 << 20
	benchCall  = 256
)

// benchTexts are n texts of a size under 64 keys, each at the beginning of a frame.
func benchTexts(b *testing.B, a aead.Algorithm, n, size int, mem []byte) *aead.Batch {
	batch := &aead.Batch{Mem: mem}
	for i := range 64 {
		k, err := aead.NewKey(a, bytes.Repeat([]byte{byte(i + 1)}, a.KeySize()))
		if err != nil {
			b.Fatal(err)
		}
		batch.Keys = append(batch.Keys, k)
	}
	frame := frameOf(size)
	for i := range n {
		op := aead.Op{AAD: uint32(i * frame), AADLen: 8, Text: uint32(i*frame + 16), Len: uint32(size), Key: uint32(i % 64)}
		op.Nonce[4], op.Nonce[5], op.Nonce[6] = byte(i), byte(i>>8), byte(i>>16)
		batch.Ops = append(batch.Ops, op)
	}
	return batch
}

// frameOf is a text with 16 bytes before it and its tag behind.
func frameOf(size int) int { return align(16+size+32, 64) }

func gpuBed(b *testing.B) *bed { return newBed(b, cuda.Options{}, Config{}) }

func BenchmarkAEAD(b *testing.B) {
	bed := gpuBed(b)
	block, err := bed.dev.AllocHost(benchBytes)
	if err != nil {
		b.Fatal(err)
	}
	defer block.Close()
	plain := make([]byte, benchBytes)
	copy(plain, block.Mem)
	area, err := bed.Register(block.Mem)
	if err != nil {
		b.Fatal(err)
	}
	defer area.Close()
	dev, err := bed.dev.Alloc(benchBytes)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	cpu, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	one := aead.NewCPU()
	for _, a := range gpuAlgorithms {
		for _, size := range []int{64, 1408, 16384} {
			all := min(benchBytes/frameOf(size), 1<<18)
			forms := []struct {
				name string
				n    int
				mem  []byte
				f    func(batch *aead.Batch) int
				open func(batch *aead.Batch) int
			}{
				{"host", all, plain, bed.Seal, bed.Open},
				{"area", all, block.Mem, areaOf(area, bed.SealIn), areaOf(area, bed.OpenIn)},
				{"area of 32 MB", min(all, benchSmall/frameOf(size)), block.Mem, areaOf(area, bed.SealIn), areaOf(area, bed.OpenIn)},
				{"resident", all, nil, residentOf(dev, bed.SealResident), residentOf(dev, bed.OpenResident)},
				{"cpu", all, plain, cpu.Seal, cpu.Open},
				{"core", benchCall, plain, one.Seal, one.Open},
				{fmt.Sprintf("host, a call of %d", benchCall), benchCall, plain, bed.Seal, bed.Open},
				{fmt.Sprintf("area, a call of %d", benchCall), benchCall, block.Mem, areaOf(area, bed.SealIn), areaOf(area, bed.OpenIn)},
			}
			for _, form := range forms {
				b.Run(fmt.Sprintf("%v/%d/%s", a, size, form.name), func(b *testing.B) {
					batch := benchTexts(b, a, form.n, size, form.mem)
					rounds(b, figure{Op: a.String(), Form: form.name, Bytes: size, N: form.n},
						func() int { return form.f(batch) }, func() int { return form.open(batch) })
				})
			}
		}
	}
	if err := cpu.Close(); err != nil {
		b.Error(err)
	}
}

// areaOf and residentOf bind the memory of a form.
func areaOf[B any](a *Area, f func(*Area, *B) (int, error)) func(*B) int {
	return func(batch *B) int {
		n, err := f(a, batch)
		if err != nil {
			return -1
		}
		return n
	}
}

func residentOf[B any](dev *cuda.Buffer, f func(*cuda.Buffer, *B) (int, error)) func(*B) int {
	return func(batch *B) int {
		n, err := f(dev, batch)
		if err != nil {
			return -1
		}
		return n
	}
}

func BenchmarkDigest(b *testing.B) {
	bed := gpuBed(b)
	block, err := bed.dev.AllocHost(benchBytes)
	if err != nil {
		b.Fatal(err)
	}
	defer block.Close()
	plain := make([]byte, benchBytes)
	area, err := bed.Register(block.Mem)
	if err != nil {
		b.Fatal(err)
	}
	defer area.Close()
	dev, err := bed.dev.Alloc(benchBytes)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	cpu, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, a := range []digest.Algorithm{digest.SHA256, digest.HMACSHA256} {
		for _, size := range []int{64, 1408, 16384} {
			n := min(benchBytes/frameOf(size), 1<<18)
			for _, form := range []struct {
				name   string
				mem    []byte
				f      func(batch *digest.Batch) int
				verify func(batch *digest.Batch) int
			}{
				{"host", plain, bed.Sum, bed.Verify},
				{"area", block.Mem, areaOf(area, bed.SumIn), areaOf(area, bed.VerifyIn)},
				{"resident", nil, residentOf(dev, bed.SumResident), residentOf(dev, bed.VerifyResident)},
				{"cpu", plain, cpu.Sum, cpu.Verify},
			} {
				b.Run(fmt.Sprintf("%v/%d/%s", a, size, form.name), func(b *testing.B) {
					batch := &digest.Batch{Algorithm: a, Mem: form.mem, Keys: []*digest.Key{digest.NewKey([]byte("key"))}}
					for i := range n {
						at := uint32(i * frameOf(size))
						batch.Ops = append(batch.Ops, digest.Op{Data: at, Len: uint32(size), Sum: at + uint32(align(size, textAlign))})
					}
					rounds(b, figure{Op: a.String(), Form: form.name, Bytes: size, N: n},
						func() int { return form.f(batch) }, func() int { return form.verify(batch) })
				})
			}
		}
	}
	if err := cpu.Close(); err != nil {
		b.Error(err)
	}
}
