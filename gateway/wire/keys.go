package wire

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"parley/event"
)

// The sizes of a cursor, in bytes, and of its text.
const (
	NonceSize   = 12
	cursorPlain = 6 + 6 + 4 + 4
	cursorTag   = 12
	maxCursor   = 64 // of its text; these sizes give 59
	// MinSecret is the least size of a cluster secret.
	MinSecret = 32
)

// ErrCursor says that a text is no cursor of this room for this subject.
var ErrCursor = errors.New("wire: not a cursor of this room and subject")

// Cursor is a position in a room's stream as one connection sees it. It is a
// hint where to begin and never a permission.
type Cursor struct {
	Incarnation event.Incarnation // low 48 bits
	Seq         event.Seq         // low 48 bits
	Minutes     uint32            // since 1970: when the position was the newest that the connection had seen
	Channels    uint32            // ChannelsHash of what the connection could read
}

// Minutes returns a time as a cursor holds it.
func Minutes(t time.Time) uint32 { return uint32(t.Unix() / 60) }

// Expired reports whether the position is older than retention, whose entries
// may be gone. Zero retention is for ever.
func (c Cursor) Expired(now time.Time, retention time.Duration) bool {
	return retention > 0 && now.Sub(time.Unix(int64(c.Minutes)*60, 0)) > retention
}

// ChannelsHash is the hash of a set of channels, in any order. all is the set
// of a host that named none.
func ChannelsHash(channels []event.ChannelID, all bool) uint32 {
	h := sha256.New()
	if all {
		h.Write([]byte{0})
	}
	sorted := slices.Clone(channels)
	slices.Sort(sorted)
	for _, ch := range sorted {
		h.Write([]byte{byte(len(ch))}) // a channel name has 1 to 128 bytes
		h.Write([]byte(ch))
	}
	return binary.BigEndian.Uint32(h.Sum(nil))
}

// Keys seals and opens the cursors of one room and names its entries. It is
// made once per room, not per connection. Immutable; safe for concurrent use.
type Keys struct {
	cursors cipher.AEAD
	entries cipher.Block
}

// NewKeys derives the keys of a room from the cluster secret, which has at
// least MinSecret bytes.
func NewKeys(secret []byte, room event.RoomID) (*Keys, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("wire: the cluster secret has %d bytes, at least %d are needed", len(secret), MinSecret)
	}
	block := func(use string) (cipher.Block, error) {
		key, err := hkdf.Key(sha256.New, secret, nil, Subprotocol+" "+use+" "+string(room), 32)
		if err != nil {
			return nil, fmt.Errorf("wire: derive the key for %s: %w", use, err)
		}
		return aes.NewCipher(key)
	}
	c, err := block("cursor")
	if err != nil {
		return nil, err
	}
	k := &Keys{}
	if k.cursors, err = cipher.NewGCMWithTagSize(c, cursorTag); err != nil {
		return nil, fmt.Errorf("wire: seal cursors: %w", err)
	}
	k.entries, err = block("entry")
	return k, err
}

// AppendCursor seals a cursor for a subject and appends its text, of at most 64
// characters. The nonce must be random and never used before.
func (k *Keys) AppendCursor(b []byte, nonce [NonceSize]byte, subject []byte, c Cursor) []byte {
	var sealed [NonceSize + cursorPlain + cursorTag]byte
	copy(sealed[:], nonce[:])
	plain := sealed[NonceSize : NonceSize+cursorPlain]
	put48(plain, uint64(c.Incarnation))
	put48(plain[6:], uint64(c.Seq))
	binary.BigEndian.PutUint32(plain[12:], c.Minutes)
	binary.BigEndian.PutUint32(plain[16:], c.Channels)
	k.cursors.Seal(plain[:0], nonce[:], plain, subject)
	return base64.RawURLEncoding.AppendEncode(b, sealed[:])
}

// OpenCursor reads a cursor that was sealed for the subject in this room; else ErrCursor.
func (k *Keys) OpenCursor(text string, subject []byte) (Cursor, error) {
	if len(text) > maxCursor || strings.ContainsAny(text, "\r\n") { // which the decoder would skip
		return Cursor{}, ErrCursor
	}
	var sealed [maxCursor]byte
	n, err := base64.RawURLEncoding.Strict().Decode(sealed[:], []byte(text))
	if err != nil || n != NonceSize+cursorPlain+cursorTag {
		return Cursor{}, ErrCursor
	}
	plain, err := k.cursors.Open(sealed[NonceSize:NonceSize], sealed[:NonceSize], sealed[NonceSize:n], subject)
	if err != nil {
		return Cursor{}, ErrCursor
	}
	return Cursor{
		Incarnation: event.Incarnation(get48(plain)), Seq: event.Seq(get48(plain[6:])),
		Minutes: binary.BigEndian.Uint32(plain[12:]), Channels: binary.BigEndian.Uint32(plain[16:]),
	}, nil
}

// EntryID names an entry: the same for all viewers, in no order. It is a keyed
// hash of one block: AES of (incarnation, sequence) under a key of its own, cut
// to 96 bits. Inputs have one fixed length, so the block cipher is a sound
// keyed hash, at a tenth of the cost of HMAC.
func (k *Keys) EntryID(inc event.Incarnation, at event.Seq) string {
	return string(k.AppendEntryID(nil, inc, at))
}

// entryIDLen is how many characters an entry id has.
const entryIDLen = 16

// AppendEntryID appends what EntryID returns.
func (k *Keys) AppendEntryID(b []byte, inc event.Incarnation, at event.Seq) []byte {
	// The block lies behind the text, in memory that the caller has anyway: the
	// cipher is an interface, for which a block of our own would be put on the heap.
	n := len(b)
	b = slices.Grow(b, entryIDLen+aes.BlockSize)[:n+entryIDLen+aes.BlockSize]
	block := b[n+entryIDLen:]
	binary.BigEndian.PutUint64(block, uint64(inc))
	binary.BigEndian.PutUint64(block[8:], uint64(at))
	k.entries.Encrypt(block, block)
	base64.RawURLEncoding.Encode(b[n:], block[:12])
	return b[:n+entryIDLen]
}

func put48(b []byte, v uint64) {
	binary.BigEndian.PutUint16(b, uint16(v>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(v))
}

func get48(b []byte) uint64 {
	return uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
}
