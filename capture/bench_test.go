package capture

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

// benchFile is a file of 1000 packets of 700 bytes.
func benchFile(b *testing.B, f Format) []byte {
	records := make([]Record, 1000)
	for i := range records {
		records[i] = Record{Data: make([]byte, 700), Time: int64(i)}
	}
	return write(b, WriterConfig{Format: f, Interfaces: ethernet}, records)
}

// benchRead measures one record per iteration; open starts the file again.
func benchRead(b *testing.B, open func() (next func() (int, error))) {
	next := open()
	b.ReportAllocs()
	b.SetBytes(700)
	for range b.N {
		n, err := next()
		if err == io.EOF {
			next = open()
			continue
		}
		if err != nil || n != 700 {
			b.Fatal(n, err)
		}
	}
}

func ours(b *testing.B, r *Reader, err error) func() (int, error) {
	if err != nil {
		b.Fatal(err)
	}
	return func() (int, error) {
		rec, err := r.Next()
		if err != nil {
			return 0, err
		}
		return len(rec.Data), nil
	}
}

func BenchmarkRead(b *testing.B) {
	for _, f := range []Format{FormatPcap, FormatPcapng} {
		file := benchFile(b, f)
		b.Run(f.String()+"/memory", func(b *testing.B) {
			benchRead(b, func() func() (int, error) {
				r, err := NewMemory(file)
				return ours(b, r, err)
			})
		})
		b.Run(f.String()+"/stream", func(b *testing.B) {
			benchRead(b, func() func() (int, error) {
				r, err := NewReader(bytes.NewReader(file))
				return ours(b, r, err)
			})
		})
		b.Run(f.String()+"/pcapgo", func(b *testing.B) {
			benchRead(b, func() func() (int, error) { return pcapgoNext(b, f, file) })
		})
	}
}

// pcapgoNext is pcapgo's reader in its fastest form, without a copy where it has one.
func pcapgoNext(b *testing.B, f Format, file []byte) func() (int, error) {
	if f == FormatPcap {
		r, err := pcapgo.NewReader(bytes.NewReader(file))
		if err != nil {
			b.Fatal(err)
		}
		return func() (int, error) {
			data, _, err := r.ZeroCopyReadPacketData()
			return len(data), err
		}
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		b.Fatal(err)
	}
	return func() (int, error) {
		data, _, err := r.ZeroCopyReadPacketData()
		return len(data), err
	}
}

func BenchmarkWrite(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	rec := Record{Data: make([]byte, 700), Time: 1_700_000_000 * second, Meta: Meta{Has: HasFlags, Flags: FlagInbound}}
	for _, f := range []Format{FormatPcap, FormatPcapng} {
		b.Run(f.String(), func(b *testing.B) {
			w, err := NewWriter(null, WriterConfig{Format: f, Interfaces: ethernet})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(700)
			for range b.N {
				if err := w.Write(&rec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
