package pmd_test

import (
	"fmt"
	"log"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
)

// The two ends of a memory wire take the place of two devices: what one sends the other receives, without a copy.
func ExampleNewMemory() {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 64, Huge: ring.HugeOff})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Close()
	pool, _ := arena.Cut(64)
	a, b, err := pmd.NewMemory(pmd.MemoryConfig{A: pool, B: pool})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	defer b.Close()

	batch := packet.NewBatch(arena.View(), 8)
	off, _ := pool.Get()
	d := packet.Desc{Off: off, Len: uint16(len("a frame"))}
	copy(arena.Bytes(&d), "a frame")
	batch.Append(d)
	sent, _ := a.Tx(0, batch) // the frame is the driver's from here on
	batch.Reset()

	got, _ := b.Rx(0, batch) // and the caller's again
	fmt.Printf("%d sent, %d received: %s\n", sent, got, batch.Bytes(0))
	pool.PutBatch(batch)
	// Output: 1 sent, 1 received: a frame
}

// A profile describes a bad network, for Impair or as text in a command line.
func ExampleParseProfile() {
	p, err := pmd.ParseProfile("loss=1% rx: delay=5ms tx: delay=20ms fifo seed=7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p)
	_, err = pmd.ParseProfile("loss=1% dealy=5ms")
	fmt.Println(err)
	// Output:
	// rx: loss=1% delay=5ms tx: loss=1% delay=20ms fifo seed=7
	// profile: column 9: "dealy=5ms" is not a word of profiles: want rx: tx: fifo seed= burst= ce= corrupt= delay= dup= loss= mtu= queue= rate= reorder=
}
