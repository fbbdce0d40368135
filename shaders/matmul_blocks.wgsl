// Blocks of four by four numbers of the factors. Appended to matmul_lanes.wgsl and matmul_tiles.wgsl.

/// Four numbers of a row of `left` that starts at `start`, from `at`; 0 beyond the end.
fn left_four(start: u32, at: u32, end: u32) -> vec4<f32> {
    if WIDE == 1u {
        return left_numbers((start + at) / 4u);
    }
    let i = places(start, at, end);
    let numbers = vec4(left_number(i.x), left_number(i.y), left_number(i.z), left_number(i.w));
    return select(vec4<f32>(), numbers, vec4(at, at + 1u, at + 2u, at + 3u) < vec4(end));
}

/// Four numbers of a row of `right` that starts at `start`, from `at`; beyond the end any finite number, since `left` is 0
/// there or the result is not written.
fn right_four(start: u32, at: u32, end: u32) -> vec4<f32> {
    if FORMAT >= 3u {
        return quantised_four(start, at);
    }
    let first = start + at * INTERLEAVED;
    if FORMAT != 0u {
        return from_halves(two_words(first / 4u));
    }
    if WIDE == 1u || INTERLEAVED > 1u {
        return bitcast<vec4<f32>>(four_words(first / 4u));
    }
    let i = places(start, at, end);
    return bitcast<vec4<f32>>(vec4(word_at(i.x), word_at(i.y), word_at(i.z), word_at(i.w)));
}

/// The place of a thread's blocks in `left` or `right`: the starts of four rows of the matrix; or, if its rows are those of k,
/// the start of the first one, the distance of two, the block's first column, and the number of columns.
struct Place { starts: vec4<u32>, column: u32, size: u32 }

fn left_place(row: u32) -> Place {
    if LAYOUT == 2u {
        return Place(vec4(params.left_at, params.left_step, 0u, 0u), row, params.m);
    }
    let rows = min(vec4(row, row + 1u, row + 2u, row + 3u), vec4(params.m - 1u));
    return Place(params.left_at + rows * params.left_step, 0u, 0u);
}

fn right_place(column: u32) -> Place {
    if LAYOUT == 0u {
        return Place(right_starts(column), 0u, 0u);
    }
    return Place(vec4(params.right_at, params.right_step, 0u, 0u), column, part.n);
}

/// Four rows (the columns of the result) by four of k.
fn left_block(place: Place, k: u32, end: u32) -> mat4x4<f32> {
    let starts = place.starts;
    if LAYOUT == 2u {
        let i = starts.x + min(vec4(k, k + 1u, k + 2u, k + 3u), vec4(end - 1u)) * starts.y;
        let there = vec4<f32>(vec4(k, k + 1u, k + 2u, k + 3u) < vec4(end));
        return transpose(mat4x4(
            left_four(i.x, place.column, place.size) * there.x, left_four(i.y, place.column, place.size) * there.y,
            left_four(i.z, place.column, place.size) * there.z, left_four(i.w, place.column, place.size) * there.w,
        ));
    }
    return mat4x4(left_four(starts.x, k, end), left_four(starts.y, k, end), left_four(starts.z, k, end), left_four(starts.w, k, end));
}

/// Four numbers of each of four rows of `right`.
fn right_rows(starts: vec4<u32>, at: u32, end: u32) -> mat4x4<f32> {
    if INTERLEAVED > 1u && (FORMAT == 1u || FORMAT == 2u) {
        // A texel has four numbers of two rows.
        let first = four_words((starts.x + at * INTERLEAVED) / 8u);
        let second = four_words((starts.z + at * INTERLEAVED) / 8u);
        return mat4x4(from_halves(first.xy), from_halves(first.zw), from_halves(second.xy), from_halves(second.zw));
    }
    return mat4x4(right_four(starts.x, at, end), right_four(starts.y, at, end), right_four(starts.z, at, end), right_four(starts.w, at, end));
}

/// Four of k (the columns of the result) by four columns.
fn right_block(place: Place, k: u32, end: u32) -> mat4x4<f32> {
    let starts = place.starts;
    if LAYOUT == 0u {
        return transpose(right_rows(starts, k, end));
    }
    if INTERLEAVED > 1u {
        let first = starts.x + row_start(k, starts.y);
        return right_rows(first + vec4(0u, 1u, 2u, 3u) * STRIPE, place.column, place.size);
    }
    let i = starts.x + min(vec4(k, k + 1u, k + 2u, k + 3u), vec4(end - 1u)) * starts.y;
    return right_rows(i, place.column, place.size);
}
