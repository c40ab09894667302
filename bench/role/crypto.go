package role

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/millrace/millrace/gpukern/aead"
	"github.com/millrace/millrace/gpukern/digest"
)

// Cryptos are what WriteCrypto writes packets for, by their numbers in the file.
var Cryptos = []string{"AES-128-GCM", "AES-256-GCM", "ChaCha20-Poly1305", "SHA-256"}

// cryptoPackets is how many packets a batch has, and the file.
const cryptoPackets = 32

// cryptoHead is the beginning of the file, little-endian. Behind it, each packet has cryptoKey, its text, and the text as it should
// be sealed, with its tag, or its hash.
type cryptoHead struct{ What, Packets, Size uint32 }

type cryptoKey struct {
	Key   [32]byte
	Nonce [12]byte
	AAD   [8]byte
}

type cryptoPacket struct {
	cryptoKey
	text, want []byte
}

// WriteCrypto writes a batch of random packets of a size for Cryptos[what], and the results of the standard library.
func WriteCrypto(path string, what, size int) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	_ = binary.Write(w, binary.LittleEndian, cryptoHead{uint32(what), cryptoPackets, uint32(size)}) // Flush has the errors
	r := rand.New(rand.NewPCG(uint64(what), uint64(size)))
	for range cryptoPackets {
		var k cryptoKey
		text := make([]byte, size)
		for _, part := range [][]byte{k.Key[:], k.Nonce[:], k.AAD[:], text} {
			for i := range part {
				part[i] = byte(r.Uint32())
			}
		}
		want, err := k.standard(what, text)
		if err != nil {
			return err
		}
		_ = binary.Write(w, binary.LittleEndian, k)
		w.Write(text)
		w.Write(want)
	}
	return w.Flush()
}

// standard returns the result of the standard library.
func (k *cryptoKey) standard(what int, text []byte) ([]byte, error) {
	var c cipher.AEAD
	var err error
	switch what {
	case 0, 1:
		block, e := aes.NewCipher(k.Key[:16<<what])
		if e != nil {
			return nil, e
		}
		c, err = cipher.NewGCM(block)
	case 2:
		c, err = chacha20poly1305.New(k.Key[:])
	default:
		sum := sha256.Sum256(text)
		return sum[:], nil
	}
	if err != nil {
		return nil, err
	}
	return c.Seal(nil, k.Nonce[:], text, k.AAD[:]), nil
}

func readCrypto(path string) (head cryptoHead, packets []cryptoPacket, err error) {
	f, err := os.Open(path)
	if err != nil {
		return head, nil, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return head, nil, err
	}
	if int(head.What) >= len(Cryptos) || head.Packets > 1<<16 || head.Size > 1<<20 {
		return head, nil, fmt.Errorf("%s is no file of packets: %+v", path, head)
	}
	result := int(head.Size) + aead.TagSize
	if Cryptos[head.What] == "SHA-256" {
		result = sha256.Size
	}
	for range head.Packets {
		p := cryptoPacket{text: make([]byte, head.Size), want: make([]byte, result)}
		if err := binary.Read(r, binary.LittleEndian, &p.cryptoKey); err != nil {
			return head, nil, err
		}
		for _, part := range [][]byte{p.text, p.want} {
			if _, err := io.ReadFull(r, part); err != nil {
				return head, nil, err
			}
		}
		packets = append(packets, p)
	}
	return head, packets, nil
}

// openCrypto seals or hashes the packets of a file without end, a batch a step, by the standard library's forms with
// -as standard. The results of the first batch are compared. Those of texts that are sealed again and again are not.
func openCrypto(o roleOptions) (roleWork, error) {
	if len(o.args) != 1 {
		return roleWork{}, errors.New("which packets?")
	}
	head, packets, err := readCrypto(o.args[0])
	if err != nil {
		return roleWork{}, err
	}
	run, version := sealPackets, ""
	if Cryptos[head.What] == "SHA-256" {
		run = hashPackets
	}
	step, version, err := run(int(head.What), packets, o.as == "standard")
	if err != nil {
		return roleWork{}, err
	}
	var n atomic.Uint64
	return roleWork{
		version: version,
		step: func() error {
			n.Add(uint64(head.Packets) * uint64(head.Size))
			return step()
		},
		counts: func() (map[string]uint64, error) { return map[string]uint64{"bytes": n.Load()}, nil },
	}, nil
}

// lay lays packets out one behind the other, with room before and behind, and returns where each begins.
func lay(packets []cryptoPacket, room int) (mem []byte, at []uint32) {
	const align = 64
	for i := range packets {
		mem = append(mem, packets[i].AAD[:]...)
		mem = append(mem, make([]byte, align-len(packets[i].AAD))...)
		at = append(at, uint32(len(mem)))
		mem = append(mem, packets[i].text...)
		mem = append(mem, make([]byte, room+align-(len(packets[i].text)+room)%align)...)
	}
	return mem, at
}

func sealPackets(what int, packets []cryptoPacket, standard bool) (step func() error, version string, err error) {
	a := []aead.Algorithm{aead.AES128GCM, aead.AES256GCM, aead.ChaCha20Poly1305}[what]
	c := aead.NewCPU()
	if standard {
		c, _ = aead.NewForm(aead.FormStandard)
	}
	b := &aead.Batch{}
	mem, at := lay(packets, aead.TagSize)
	b.Mem = mem
	for i := range packets {
		p := &packets[i]
		k, err := aead.NewKey(a, p.Key[:a.KeySize()])
		if err != nil {
			return nil, "", err
		}
		b.Keys = append(b.Keys, k)
		op := aead.Op{Text: at[i], Len: uint32(len(p.text)), AAD: at[i] - 64, AADLen: uint16(len(p.AAD)), Key: uint32(i)}
		copy(op.Nonce[:], p.Nonce[:])
		b.Ops = append(b.Ops, op)
	}
	step = func() error {
		if n := c.Seal(b); n != len(b.Ops) {
			return fmt.Errorf("sealed %d of %d", n, len(b.Ops))
		}
		return nil
	}
	if err := step(); err != nil {
		return nil, "", err
	}
	for i, p := range packets {
		if got := mem[at[i]:][:len(p.want)]; !bytes.Equal(got, p.want) {
			return nil, "", fmt.Errorf("packet %d is sealed as %x, want %x", i, got, p.want)
		}
	}
	return step, c.Form(a).String(), nil
}

func hashPackets(_ int, packets []cryptoPacket, standard bool) (step func() error, version string, err error) {
	c := digest.NewCPU()
	if standard {
		c, _ = digest.NewForm(digest.FormStandard)
	}
	b := &digest.Batch{Algorithm: digest.SHA256}
	mem, at := lay(packets, sha256.Size)
	b.Mem = mem
	for i, p := range packets {
		b.Ops = append(b.Ops, digest.Op{Data: at[i], Len: uint32(len(p.text)), Sum: at[i] + uint32(len(p.text))})
	}
	step = func() error {
		if n := c.Sum(b); n != len(b.Ops) {
			return fmt.Errorf("hashed %d of %d", n, len(b.Ops))
		}
		return nil
	}
	if err := step(); err != nil {
		return nil, "", err
	}
	for i, p := range packets {
		if got := mem[b.Ops[i].Sum:][:len(p.want)]; !bytes.Equal(got, p.want) {
			return nil, "", fmt.Errorf("the hash of packet %d is %x, want %x", i, got, p.want)
		}
	}
	return step, c.Form(digest.SHA256).String(), nil
}
