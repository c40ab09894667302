package stack_test

import (
	"fmt"
	"log"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// A loop forwards between its two devices, in virtual time: Poll is one iteration, and no goroutine or clock takes part.
func ExampleLoop_Poll() {
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 256, Huge: ring.HugeOff})
	if err != nil {
		log.Fatal(err)
	}
	defer arena.Close()
	pool, _ := arena.Cut(256)
	left, dev0, _ := pmd.NewMemory(pmd.MemoryConfig{A: pool, B: pool, Slots: 64})
	dev1, right, _ := pmd.NewMemory(pmd.MemoryConfig{A: pool, B: pool, Slots: 64})
	loop, err := stack.NewLoop(stack.Config{
		Devices: []pmd.Driver{dev0, dev1}, Pool: pool, Engine: gpukern.NewCPU(gpukern.Config{}), Handler: stack.Bridge{},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer loop.Close()

	batch := packet.NewBatch(arena.View(), 8)
	off, _ := pool.Get()
	d := packet.Desc{Off: off, Len: 60}
	clear(arena.Bytes(&d))
	batch.Append(d)
	left.Tx(0, batch)
	loop.Poll(0)

	batch.Reset()
	n, _ := right.Rx(0, batch)
	fmt.Printf("%d packet of %d bytes, %d forwarded\n", n, batch.D[0].Len, loop.Stats().Forwarded)
	pool.PutBatch(batch)
	// Output: 1 packet of 60 bytes, 1 forwarded
}
