package role

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"

	theirs "github.com/quic-go/qpack"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/http3/qpack"
	"github.com/millrace/millrace/internal/testkit/browser"
)

// browserFields are those of a request as Chromium sends it for a page.
var browserFields = pageFields()

func pageFields() (fields []qpack.Field) {
	for _, f := range browser.Page("/") {
		fields = append(fields, qpack.Field{Name: f[0], Value: f[1]})
	}
	return fields
}

// openQPACK plays the contestants of qpack-decode: a warm dynamic table, or literals only, which is all that
// quic-go knows.
func openQPACK(o roleOptions) (roleWork, error) {
	decoder, section, err := decodedQPACK(o.as == "warm")
	if err != nil {
		return roleWork{}, err
	}
	version, step := runtime.Version(), decodeQPACK(decoder, section)
	if o.as == "quic-go" {
		version, step = harness.ModuleVersion("github.com/quic-go/qpack"), decodeTheirs(section)
	}
	if err := step(); err != nil {
		return roleWork{}, err
	}
	allocs := testing.AllocsPerRun(100, func() { _ = step() })
	var done atomic.Uint64
	return roleWork{
		version: version,
		step: func() error {
			for range 1000 {
				if err := step(); err != nil {
					return err
				}
			}
			done.Add(1000)
			return nil
		},
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"sections": done.Load(), "allocs": uint64(allocs)}, nil
		},
	}, nil
}

// decodedQPACK returns a decoder that has decoded the fields a few times, and the last section.
func decodedQPACK(warm bool) (decoder *qpack.Decoder, section []byte, err error) {
	encoder := qpack.NewEncoder(qpack.EncoderOptions{})
	decoder = qpack.NewDecoder(qpack.DecoderOptions{MaxCapacity: 4096, MaxBlocked: 16})
	if warm {
		encoder.SetPeer(4096, 16)
	}
	var s qpack.Section
	for stream := range uint64(4) {
		section = encoder.Encode(section[:0], stream, browserFields)
		if err := decoder.Instructions(encoder.AppendStream(nil)); err != nil {
			return nil, nil, err
		}
		if done, err := decoder.Decode(stream, section, &s); !done || err != nil {
			return nil, nil, fmt.Errorf("decoding: %v, %w", done, err)
		}
		if err := encoder.Acknowledgments(decoder.AppendStream(nil)); err != nil {
			return nil, nil, err
		}
	}
	return decoder, section, nil
}

// decodeQPACK decodes a section, and makes its acknowledgment.
func decodeQPACK(decoder *qpack.Decoder, section []byte) func() error {
	var s qpack.Section
	var out []byte
	return func() error {
		if _, err := decoder.Decode(4, section, &s); err != nil {
			return err
		}
		out = decoder.AppendStream(out[:0])
		return nil
	}
}

// decodeTheirs decodes a section by quic-go's package.
func decodeTheirs(section []byte) func() error {
	peer := theirs.NewDecoder()
	return func() error {
		next := peer.Decode(section)
		for n := 0; ; n++ {
			_, err := next()
			switch {
			case errors.Is(err, io.EOF) && n == len(browserFields):
				return nil
			case err != nil:
				return err
			}
		}
	}
}
