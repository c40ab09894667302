package qpack_test

import (
	"fmt"
	"log"

	"github.com/millrace/millrace/http3/qpack"
)

// The second section refers to what the first has put into the dynamic table.
func Example() {
	encoder := qpack.NewEncoder(qpack.EncoderOptions{})
	encoder.SetPeer(4096, 16) // the decoder's settings
	decoder := qpack.NewDecoder(qpack.DecoderOptions{MaxCapacity: 4096, MaxBlocked: 16})
	fields := []qpack.Field{{Name: ":path", Value: "/"}, {Name: "user-agent", Value: "an example with a long name"}}
	for stream := uint64(0); stream < 8; stream += 4 {
		section := encoder.Encode(nil, stream, fields)
		instructions := encoder.AppendStream(nil)
		if err := decoder.Instructions(instructions); err != nil {
			log.Fatal(err)
		}
		var s qpack.Section
		if done, err := decoder.Decode(stream, section, &s); !done || err != nil {
			log.Fatal(done, err)
		}
		if err := encoder.Acknowledgments(decoder.AppendStream(nil)); err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(s.Fields), "fields from", len(section), "bytes after", len(instructions), "of instructions")
	}
	// Output:
	// 2 fields from 4 bytes after 26 of instructions
	// 2 fields from 4 bytes after 0 of instructions
}
