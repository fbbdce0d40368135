// Loads of four and eight numbers in kernels for processors. lavapipe loads one element of one thread after the other, and
// two numbers at once, as an integer of 64 bits, take hardly longer than one.

alias Four = vec2<u64>;
alias Eight = vec4<u64>;

fn words_of(pair: u64) -> vec2<u32> {
    return vec2(u32(pair), u32(pair >> 32u));
}

fn four(stored: Four) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4(words_of(stored.x), words_of(stored.y)));
}

fn eight(stored: Eight) -> mat2x4<f32> {
    return mat2x4(four(stored.xy), four(stored.zw));
}
